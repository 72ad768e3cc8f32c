"""Fits a model config to the GPUs of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from serving import weights
from serving.engine.capacity import ROOM_FOR_ONE, STEP_TOKENS, Capacity, capacity_of, graph_sizes, shape_of
from serving.engine.gpus import Gpu
from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.model_configs import MODELS
from serving.weights import model_path, prepare
from speedrunner.plain.plain_yaml import read_yaml_file

SHAPES = MODELS / "shapes" / "shapes.yaml"
"""The published sizes of models, by the `shape` of a model config."""

SHARE = 0.92
"""vLLM's own `gpu-memory-utilization`, for model configs that set none."""

SEQUENCES, STEP, MEMORY_SHARE = "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization"
COMPILATION, MATCH_UNIT = "compilation-config", "prefix-match-unit"

UNKNOWN_FLAGS = frozenset(
    {"block-size", "cpu-offload-gb", "kv-cache-dtype", "kv-cache-memory-bytes", "mamba-ssm-cache-dtype"}
    | {"num-gpu-blocks-override", "quantization", "speculative-config"}
)
"""Flags that change memory or cache in ways that the arithmetic does not cover."""

SHOWN_TOKENS = 8192
"""Users see the number of conversations of this length that the cache holds."""


def size_model(model_config: ModelConfig, gpus: Sequence[Gpu], say: Callable[[str], None]) -> ModelConfig:
    """Return the model config with the context and flags for the GPUs of its server, and say what was chosen.

    A second call with its result changes nothing. Raises `InvalidModelConfig`: the GPUs are too small, or the
    model's folder is missing.
    """
    if not gpus:
        return model_config
    prepare(model_config, say)
    fitted = fit(model_config, gpus)
    if fitted != model_config:
        say(describe(fitted, gpus))
    return fitted


def fit(model_config: ModelConfig, gpus: Sequence[Gpu]) -> ModelConfig:
    """Return the model config with the context, sequences, token budget and CUDA graphs for the GPUs' memory.

    The context is the model config's, which is the model's limit, or a half, a quarter, ... of it. Flags that
    the model config sets are kept. These model configs do not change: those without GPUs, those of models
    that the arithmetic does not know, and those without a readable `config.json`.

    Args:
        gpus: the GPUs that the server may use; the smallest one decides.

    Raises `InvalidModelConfig`: the weights leave no room for a conversation, or `prefix-match-unit` does not
    divide a block.
    """
    cache = cache_on(model_config, gpus)
    if cache is None:
        return model_config
    unit = model_config.server.flags.get(MATCH_UNIT, 1)
    if cache.block_size % cast(int, unit):
        raise InvalidModelConfig(
            f"{model_config.name}: server.flags.{MATCH_UNIT} {unit} must divide the {cache.block_size} tokens"
            " of a block: 16 always does"
        )
    least, context = answer_tokens(model_config) + 1, model_config.context
    while context >= least and cache.blocks(context) > ROOM_FOR_ONE * (cache.num_gpu_blocks - 1):
        context //= 2
    if context < least:
        raise InvalidModelConfig(
            f"{model_config.name} on {model_config.gpus} x {min(gpus, key=lambda gpu: gpu.total)}:"
            f" {cache.weights / model_config.gpus / 1e9:.1f} GB of weights on each leave room for no"
            f" conversation of {least:,} tokens; use larger GPUs, or a model configuration for more GPUs or"
            " in FP8 (speedrunner list models)"
        )
    flags = dict(model_config.server.flags)
    flags.setdefault(SEQUENCES, cache.sequences)
    flags.setdefault(STEP, _step_tokens(model_config))
    sequences, compilation = flags[SEQUENCES], flags.get(COMPILATION, {})
    if isinstance(sequences, int) and isinstance(compilation, dict):
        flags[COMPILATION] = {"cudagraph_capture_sizes": graph_sizes(sequences), **compilation}
    return msgspec.structs.replace(model_config.with_flags(flags), context=context)


def cache_on(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Capacity | None:
    """Compute the prefix cache of one replica on these GPUs; `None` if it is not known."""
    flags = model_config.server.flags
    memory = min((gpu.total for gpu in gpus), default=0) * 2**20
    if not (model_config.gpus and memory) or UNKNOWN_FLAGS & set(flags) or model_config.dtype == "float32":
        return None
    config = read_config(model_config)
    shape = shape_of(config) if config else None
    shards, share = flags.get("tensor-parallel-size", 1), memory_share(model_config)
    if shape is None or not isinstance(shards, int):
        return None
    step = _step_tokens(model_config)
    return capacity_of(shape, memory, shards=shards, share=share, step_tokens=step)


def memory_share(model_config: ModelConfig) -> float:
    """Return the share of a GPU's memory that the server takes."""
    share = model_config.server.flags.get(MEMORY_SHARE, SHARE)
    return share if isinstance(share, int | float) else SHARE


def answer_tokens(model_config: ModelConfig) -> int:
    """Return the length of the longest answer that a role may write, in tokens."""
    return max(
        role.thinking_tokens + role.string_tokens
        for role in (model_config.roles.actor, model_config.roles.inducer)
    )


def describe(model_config: ModelConfig, gpus: Sequence[Gpu]) -> str:
    """Describe in one line what a fitted model config provides on these GPUs."""
    flags, cache = model_config.server.flags, cache_on(model_config, gpus)
    line = (
        f"{model_config.name} on {model_config.gpus} x {min(gpus, key=lambda gpu: gpu.total).name}:"
        f" context {model_config.context:,}, {flags.get(SEQUENCES)} sequences,"
        f" {_step_tokens(model_config):,} tokens a step"
    )
    held = cache.conversations(SHOWN_TOKENS) if cache else None
    return line if held is None else f"{line}; a cache holds {held} conversations of {SHOWN_TOKENS:,} tokens"


def read_config(model_config: ModelConfig) -> dict[str, Any] | None:
    """Read the model's `config.json`; if it is not on this machine, the same sizes are in
    models/shapes/shapes.yaml. `None` if neither is available."""
    folder: Path | None = Path(model_path(model_config))
    if model_config.id is not None:
        folder = weights.cached_folder(model_config.id, model_config.revision)
    if folder is None or not (folder / weights.CONFIG).exists():
        shapes: dict[str, dict[str, Any]] = read_yaml_file(SHAPES)["shapes"]
        return shapes.get(str(model_config.shape))
    return weights.read_json(folder / weights.CONFIG) or None


def _step_tokens(model_config: ModelConfig) -> int:
    named = model_config.server.flags.get(STEP)
    return named if isinstance(named, int) else STEP_TOKENS
