"""The arithmetic of a prefix cache agrees with vLLM's own code, and gives each GPU what its memory allows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from serving.engine.capacity import (
    CacheConfig,
    Capacity,
    block_of,
    capacity_of,
    graph_sizes,
    shape_of,
    weights_bytes,
)
from serving.model_configs import load_model_config
from tests.gpu_kinds import GPUS, SHAPES

BY_VLLM = {
    ("qwen3.5-27b", "H100"): 396,
    ("qwen3.5-27b", "H200"): 1564,
    ("qwen3.5-27b-fp8", "H100"): 870,
    ("qwen3.5-27b-fp8", "H200"): 2038,
    ("qwen3.5-27b-2gpu", "H100"): 1840,
    ("qwen3.5-27b-2gpu", "H200"): 4176,
    ("qwen3.5-27b-4x48gb", "A6000"): 2351,
    ("qwen3.5-9b", "A6000"): 1488,
    ("qwen3.5-4b", "A10G"): 612,
    ("qwen3-8b", "A6000"): 11_797,
    ("qwen3-8b", "H100"): 24_826,
    ("qwen3-4b-instruct", "A6000"): 15_307,
    ("llama-3.1-8b-instruct", "A6000"): 13_414,
}
"""Blocks that vLLM 0.32's code for GPUs computes from the model's layers, on faked CUDA devices.
It was given 2.5 to 3.7 GiB for anything but weights and cache: an assumption."""


def computed(name: str, kind: str) -> Capacity:
    model_config = load_model_config(name)
    shape = shape_of(SHAPES[str(model_config.shape)])
    assert shape is not None
    return capacity_of(
        shape, GPUS[kind].total * 2**20, shards=model_config.gpus, share=0.92, step_tokens=8192
    )


@pytest.mark.parametrize(("name", "kind"), BY_VLLM)
def test_blocks_are_those_of_vllm_within_5_percent(name: str, kind: str) -> None:
    assert computed(name, kind).num_gpu_blocks == pytest.approx(BY_VLLM[name, kind], rel=0.05)


@pytest.mark.parametrize(("name", "measured"), [("qwen3.5-27b", 1567), ("qwen3.5-4b", 7351)])
def test_blocks_are_those_of_an_h200_also_with_256_sequences(name: str, measured: int) -> None:
    assert computed(name, "H200").num_gpu_blocks == pytest.approx(measured, rel=0.002)


ATTENTION, HYBRID = CacheConfig(16, 100, True, 16), CacheConfig(640, 100, True, 16, hybrid=True)


@pytest.mark.parametrize(
    ("cache", "prompt", "answer", "kept"),
    [
        (ATTENTION, 60, 4, 48),  # the last generated token is not computed
        (ATTENTION, 60, 5, 64),
        (ATTENTION, 64, 1, 64),
        (HYBRID, 60, 500, 48),
        (HYBRID, 64, 1, 48),
        (HYBRID, 65, 1, 64),
        (HYBRID, 600, 80, 592),  # nothing of the answer, also if it fills a block
        (HYBRID, 700, 80, 688),
        (CacheConfig(640, 100, True, 640, hybrid=True), 600, 80, 640),
        (CacheConfig(16, 100, False, 16), 60, 5, 0),
        (ATTENTION, 0, 1, 0),  # no warmed-up prefix
        (HYBRID, 0, 1, 0),
    ],
)
def test_a_cache_keeps_whole_blocks_and_a_hybrid_one_the_ends_of_prompts(
    cache: CacheConfig, prompt: int, answer: int, kept: int
) -> None:
    assert cache.kept_tokens(prompt, answer) == kept


@pytest.mark.parametrize(
    ("cache", "sent", "common", "kept"),
    [
        (ATTENTION, 2000, 1600, 1600),
        (ATTENTION, 2000, 1607, 1600),
        (HYBRID, 2000, 1936, 1920),  # the end of the last whole block
        (HYBRID, 2000, 1919, 0),
        (HYBRID, 2000, 2000, 1984),  # its own end
        (HYBRID, 600, 590, 0),
        (CacheConfig(16, 100, False, 16), 60, 50, 0),
    ],
)
def test_an_edit_of_a_prompt_leaves_blocks_or_the_states_before_it(
    cache: CacheConfig, sent: int, common: int, kept: int
) -> None:
    assert cache.kept_by_edit(sent, common) == kept


def test_graphs_cover_each_number_of_sequences_up_to_vllm_s_largest() -> None:
    for sequences in (1, 16, 32, 104, 256):
        sizes = graph_sizes(sequences)
        assert sequences in sizes
        assert sizes[-1] == max(2 * sequences, 4)
        assert all(after <= max(1.25 * before, before + 8) for before, after in pairwise(sizes))
        assert len(sizes) < 25


def test_weights_and_blocks_agree_with_the_published_sizes() -> None:
    shapes = {name: shape_of(config) for name, config in SHAPES.items()}
    billions = {name: round(weights_bytes(shape) / 2e9, 1) for name, shape in shapes.items() if shape}
    names = ("qwen3.5-27b", "qwen3-8b", "llama-3.1-8b-instruct")
    assert [billions[name] for name in names] == [26.9, 8.2, 8.0]
    blocks = {name: block_of(shape) for name, shape in shapes.items() if shape}
    assert blocks["qwen3.5-27b"] == (784, 51_380_224)
    assert blocks["qwen3.5-9b"] == blocks["qwen3.5-4b"] == (528, 17_301_504)
