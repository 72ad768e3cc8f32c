"""The project's own arithmetic of KV caches, to compare with vLLM's."""

from __future__ import annotations

import msgspec

from serving.engine.metrics import blocks_of
from serving.model_card import ModelCard
from tests.gpu.gpus import GIB, Gpu
from tests.models.test_cards import SHAPES, block, weights_bytes


class Claim(msgspec.Struct, frozen=True):
    """The KV cache of one replica, as the project computes it.

    Attributes:
        block_tokens: tokens of a block.
        blocks: how many blocks there are; 0 or less where the weights do not fit.
        conversations: how many conversations the cache holds, by their length in tokens.
    """

    block_tokens: int
    blocks: int
    conversations: dict[int, int]


def claimed(card: ModelCard, gpu: Gpu) -> Claim:
    """Return the KV cache of a model configuration on one kind of GPU, by docs/gpu.md."""
    shape = SHAPES[str(card.shape)]
    block_tokens, block_bytes = block(shape)
    room = card.gpus * (0.9 * gpu.memory_gib * GIB - 4e9) - weights_bytes(shape)
    blocks = int(room / block_bytes)
    lengths = {8192, 32_768, card.context}
    hybrid = card.cache == "hybrid"
    return Claim(
        block_tokens,
        blocks,
        {tokens: max(blocks, 0) // blocks_of(tokens, block_tokens, hybrid=hybrid) for tokens in lengths},
    )
