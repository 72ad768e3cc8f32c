"""What is wrong with a server's settings for its prefix cache."""

from __future__ import annotations

import msgspec

from serving.cards import load_card
from serving.engine.metrics import CacheConfig
from serving.probes.cache_advice import advice

HYBRID = CacheConfig(
    block_size=640, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=16, hybrid=True
)


def test_hybrid_models_need_a_match_unit_and_on_a_cpu_a_block_size() -> None:
    card = load_card("tiny-hybrid")
    assert advice(card, HYBRID, hits=True, reported=True) == []
    whole_blocks = msgspec.structs.replace(HYBRID, match_unit=640)
    (line,) = advice(card, whole_blocks, hits=True, reported=True)
    assert "whole blocks of 640 tokens" in line
    assert "--prefix-match-unit 16" in line
    (line,) = advice(card, HYBRID, hits=False, reported=False)
    assert "--block-size 640" in line
    on_gpu = load_card("qwen3.5-27b")
    assert advice(on_gpu, HYBRID, hits=False, reported=False) == []
