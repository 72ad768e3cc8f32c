"""The prefix cache of an engine's replica, and its size on given GPUs, computed from a `config.json`.

The arithmetic covers dense models with full attention, and hybrids of full attention and gated delta nets
(Qwen3.5). vLLM's own code gave the same numbers of blocks within 5 %, and one H200 within 0.2 %
(tests/serving/engine/test_capacity.py). Logits and sampling have no term: their memory, about 1 GB for 256
sequences, is in use when that of the layers (`overhead_bytes`) is free again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import msgspec

HYBRID_EXTRA_BLOCKS = 12
"""Blocks that a conversation holds on a hybrid model beyond those of its tokens, measured with vLLM 0.32 and
episodes of `tiny-hybrid`: with half the room that 16 conversations need, 12 gave 98.7 % of the most that can
be cached, 9 gave 90 %, 6 (enough for idle ones) 62 %."""


class CacheConfig(msgspec.Struct, frozen=True):
    """The prefix cache of one replica.

    Attributes:
        block_size: tokens per block.
        num_gpu_blocks: number of blocks, on whatever device the engine runs; vLLM reserves one of them.
        enable_prefix_caching: whether blocks are shared at all.
        match_unit: the length of a matching prefix is rounded down to a multiple of this many tokens.
        hybrid: whether the model has recurrent states, which are kept only at the ends of prompts.
    """

    block_size: int
    num_gpu_blocks: int
    enable_prefix_caching: bool
    match_unit: int
    hybrid: bool = False

    def blocks(self, tokens: int, shared: int = 0) -> int:
        """Return the number of blocks that a conversation of this many tokens holds, without shared ones.

        Args:
            shared: number of its first tokens that other conversations hold as well.
        """
        own = max(-(-tokens // self.block_size) - shared // self.block_size, 0)
        return own + (HYBRID_EXTRA_BLOCKS if self.hybrid else 0)

    def kept_tokens(self, prompt: int, answer: int) -> int:
        """Return how many of a request's tokens the cache keeps for the next prompt, which they begin.

        The rule is that of vLLM 0.32, measured. A cache whose matches end at whole blocks keeps every one,
        also of the answer, but never the last generated token, which is not computed. A hybrid one with a
        smaller match unit keeps the end of the prompt, rounded down, and no token of the answer.
        """
        if not self.enable_prefix_caching:
            return 0
        known = prompt + (answer if self.match_unit == self.block_size else 0)
        return max(known - 1, 0) // self.match_unit * self.match_unit

    def kept_by_edit(self, sent: int, common: int) -> int:
        """Return how many tokens of a prompt the cache gives to another prompt that begins like it.

        An attention cache keeps each whole block. A hybrid one keeps two states of a prompt, however many
        steps compute it: its end, rounded down to the match unit, and the end of its last whole block. The
        rule is that of vLLM 0.32, measured (docs/serving.md).

        Args:
            sent: length of the first prompt.
            common: number of tokens with which both begin.
        """
        if not self.enable_prefix_caching:
            return 0
        block = self.block_size
        if not self.hybrid:
            return common // block * block
        ends = self.kept_tokens(sent, 1), sent // block * block
        return max((end for end in ends if end <= common), default=0)

    def conversations(self, tokens: int) -> int:
        """Return how many conversations of this length the cache holds at the same time."""
        return max(self.num_gpu_blocks - 1, 0) // self.blocks(tokens)


DENSE, HYBRID = ("llama", "qwen3"), ("qwen3_5_text",)
"""Values of `model_type` that this arithmetic knows."""

DRIVER_BYTES = 2**29
"""Memory that the driver keeps: CUDA shows about 0.5 GiB less than NVML (H100: 79.1 of 79.6 GiB)."""

FIXED_BYTES = 1.5e9
"""Memory per GPU for the CUDA context, communication buffers and CUDA graphs: an estimate."""

ROOM_FOR_ONE = 0.85
"""Largest share of the blocks that one conversation of the whole context may take. The estimate may be off by
some percent, and an engine does not start if its cache has no room for such a conversation."""

TYPICAL_TOKENS = 2048
LEAST_SEQUENCES, MOST_SEQUENCES, SEQUENCE_STEP = 16, 256, 8
"""An engine computes as many sequences at once as its cache has conversations of `TYPICAL_TOKENS`. Unused
sequences cost only CUDA graphs. More sequences than the cache holds would evict each other's prefixes."""

STEP_TOKENS = 8192
"""Token budget of one step: vLLM's own default for its server on GPUs of 70 GiB. Below and on A100s vLLM uses
2,048, which keeps the time between tokens short while long prompts arrive. Here nearly every prompt token is
cached, and the few long prompts (a sleep's first one) need a quarter of the steps with 8,192. The difference
is not measured."""


class Shape(msgspec.Struct, frozen=True):
    """A model's sizes, named as in the text part of its `config.json`."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False
    attn_output_gate: bool = False
    full_attention_interval: int | None = None
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    mamba_ssm_dtype: str = "float32"
    quantization_config: dict[str, Any] | None = None

    @property
    def is_hybrid(self) -> bool:
        """Whether only some layers have full attention."""
        return self.model_type in HYBRID

    @property
    def attention_layers(self) -> int:
        """Layers with full attention."""
        return self.num_hidden_layers // (self.full_attention_interval or 1)

    @property
    def head_size(self) -> int:
        """Numbers in one head's key, and in its value."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def key_value_heads(self) -> int:
        """Heads that have keys and values to cache."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def linear_channels(self) -> int:
        """Channels of a linear layer's convolution: queries, keys and values."""
        keys = self.linear_num_key_heads * self.linear_key_head_dim
        return 2 * keys + self.linear_num_value_heads * self.linear_value_head_dim


class Capacity(CacheConfig, frozen=True, kw_only=True):
    """The prefix cache that one replica will have.

    Attributes:
        weights: bytes of the weights, over all GPUs.
    """

    weights: int

    @property
    def sequences(self) -> int:
        """Sequences to compute at once; see `TYPICAL_TOKENS`."""
        rounded = SEQUENCE_STEP * ceil(self.conversations(TYPICAL_TOKENS) / SEQUENCE_STEP)
        return min(max(rounded, LEAST_SEQUENCES), MOST_SEQUENCES)


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """Read a `config.json`. Returns `None` for a model that this arithmetic does not know."""
    text = {key: config[key] for key in ("tie_word_embeddings", "quantization_config") if key in config}
    text |= config.get("text_config", config)
    try:
        shape = msgspec.convert(text, Shape)
    except msgspec.ValidationError:
        return None
    hybrid = shape.is_hybrid and shape.full_attention_interval and shape.linear_channels
    quantization = (shape.quantization_config or {}).get("quant_method", "fp8")
    known = (shape.model_type in DENSE or hybrid) and quantization == "fp8"
    return shape if known and not text.get("use_sliding_window") else None


def weights_bytes(shape: Shape) -> int:
    """Return the bytes of the matrices: two for each number, or one in the layers of an FP8 model."""
    hidden, layers = shape.hidden_size, shape.num_hidden_layers
    heads, keys = (count * shape.head_size for count in (shape.num_attention_heads, shape.key_value_heads))
    attention = hidden * (heads * (2 if shape.attn_output_gate else 1) + 2 * keys + heads)
    values = shape.linear_num_value_heads * shape.linear_value_head_dim
    # Projections in (queries, keys, values; output gate; the heads' two gates) and out.
    linear = hidden * (shape.linear_channels + 2 * values + 2 * shape.linear_num_value_heads)
    matrices = 3 * layers * hidden * shape.intermediate_size
    matrices += shape.attention_layers * attention + (layers - shape.attention_layers) * linear
    embeddings = shape.vocab_size * hidden * (1 if shape.tie_word_embeddings else 2)
    return matrices * (1 if shape.quantization_config else 2) + 2 * embeddings


def block_of(shape: Shape, shards: int = 1) -> tuple[int, int]:
    """Return the tokens of one block of the cache, and its bytes on one GPU.

    Args:
        shards: GPUs among which each layer's heads are divided (tensor parallel).
    """
    # Key and value in 16 bits; each GPU has at least one head.
    token = 2 * 2 * max(shape.key_value_heads // shards, 1) * shape.head_size
    tokens = 16
    if shape.is_hybrid:
        # One block of an attention layer must have room for one state of a linear layer.
        states = shape.linear_num_value_heads * shape.linear_value_head_dim * shape.linear_key_head_dim
        number = 4 if shape.mamba_ssm_dtype == "float32" else 2
        state = 2 * shape.linear_channels * (shape.linear_conv_kernel_dim - 1) + number * states
        tokens *= ceil(state / shards / (tokens * token))
    return tokens, tokens * token * shape.attention_layers


def overhead_bytes(shape: Shape, step_tokens: int, shards: int = 1) -> float:
    """Return the bytes on one GPU for everything but weights and cache: an estimate.

    It is the sum of `FIXED_BYTES` and the intermediate results of one step: 16-bit numbers for each token,
    two sets of an MLP's three vectors (divided among the GPUs) and of four vectors of the hidden size.
    """
    numbers = 6 * shape.intermediate_size / shards + 8 * shape.hidden_size
    return FIXED_BYTES + 2 * step_tokens * numbers


def graph_sizes(sequences: int) -> list[int]:
    """Return the numbers of tokens of a step for which the engine captures CUDA graphs.

    From 8 on they grow by at most a quarter (by 8 up to 32), since a step is padded to the next one. The
    largest is vLLM's own.
    """
    ranges = ((8, 64, 8), (80, 128, 16), (160, 256, 32), (320, 512, 64))
    steps = (size for first, last, step in ranges for size in range(first, last + 1, step))
    largest = min(2 * sequences, 512)
    return sorted({1, 2, 4, *(size for size in steps if size < largest), sequences, largest})


def capacity_of(shape: Shape, memory: int, *, shards: int = 1, share: float, step_tokens: int) -> Capacity:
    """Compute the capacity of one replica's prefix cache.

    Args:
        memory: bytes of the smallest GPU, as the driver reports them.
        shards: GPUs among which each layer is divided (tensor parallel).
        share: share of the memory that vLLM takes (`gpu-memory-utilization`).
        step_tokens: most tokens that one step computes (`max-num-batched-tokens`).
    """
    weights = weights_bytes(shape)
    tokens, size = block_of(shape, shards)
    free = share * (memory - DRIVER_BYTES) - weights / shards
    blocks = int((free - overhead_bytes(shape, step_tokens, shards)) / size)
    return Capacity(
        block_size=tokens,
        num_gpu_blocks=max(blocks, 0),
        enable_prefix_caching=True,
        match_unit=tokens,
        hybrid=shape.is_hybrid,
        weights=weights,
    )
