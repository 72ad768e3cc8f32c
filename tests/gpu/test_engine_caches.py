"""vLLM's GPU build accepts every model configuration, and its KV caches are as large as the project says."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import msgspec
import pytest

from serving.engine.capacity import CacheConfig
from serving.errors import InvalidModelConfig
from serving.model_configs import CHECKOUT, list_model_configs, load_model_config
from serving.sizing import cache_on, fit
from tests.gpu.engine_caches import EngineCache
from tests.gpu.faked_cuda import GPUS, require_gpu_environment

require_gpu_environment()

ON_GPUS = {
    model_config.name: model_config
    for model_config in map(load_model_config, list_model_configs())
    if model_config.gpus
}

TOLERANCE = 0.02
"""Largest relative difference between our number of blocks and vLLM's. Both count the same memory for
what neither knows without a GPU (`overhead_bytes`)."""

LENGTHS = (8192, 32_768)


@cache
def run_engine_caches(kind: str) -> subprocess.CompletedProcess[str]:
    """Compute all caches on one kind of GPU, once: fakes of several kinds need several processes."""
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.engine_caches", kind],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )


def engine_cache(model: str, kind: str) -> EngineCache:
    """Return vLLM's KV cache of a model configuration on one kind of GPU."""
    run = run_engine_caches(kind)
    assert run.returncode == 0, run.stderr[-5000:]
    found = msgspec.json.decode(run.stdout.splitlines()[-1], type=list[EngineCache])
    return next(each for each in found if each.model == model)


@pytest.mark.parametrize("kind", GPUS)
@pytest.mark.parametrize("model", ON_GPUS)
class TestEveryConfigurationOnEveryGpu:
    def test_vllm_takes_it_with_our_worker(self, model: str, kind: str) -> None:
        found = engine_cache(model, kind)
        assert found.worker == "vllm.v1.worker.gpu_worker"
        assert found.attention == ["FLASH_ATTN", "GDN_ATTN"][: 2 if ON_GPUS[model].cache == "hybrid" else 1]

    def test_it_fits_where_we_say_that_it_fits(self, model: str, kind: str) -> None:
        model_config, refused = ON_GPUS[model], engine_cache(model, kind).refused
        if refused:
            with pytest.raises(InvalidModelConfig):
                fit(model_config, [GPUS[kind]])
        else:
            assert fit(model_config, [GPUS[kind]]).context <= model_config.context

    def test_its_blocks_are_those_that_we_compute(self, model: str, kind: str) -> None:
        found, ours = engine_cache(model, kind), cache_on(ON_GPUS[model], [GPUS[kind]])
        assert ours is not None
        assert found.block_tokens == ours.block_size
        if not found.refused:
            assert found.blocks == pytest.approx(ours.num_gpu_blocks, rel=TOLERANCE)
            assert found.match_unit == 16

    def test_it_holds_the_conversations_that_we_show(self, model: str, kind: str) -> None:
        model_config, found = ON_GPUS[model], engine_cache(model, kind)
        ours = cache_on(model_config, [GPUS[kind]])
        assert ours is not None
        if found.refused:
            return
        is_hybrid = model_config.cache == "hybrid"
        theirs = CacheConfig(found.block_tokens, found.blocks, True, found.match_unit, hybrid=is_hybrid)
        for tokens in (*LENGTHS, fit(model_config, [GPUS[kind]]).context):
            allowed = max(1, TOLERANCE * ours.conversations(tokens))
            assert theirs.conversations(tokens) == pytest.approx(ours.conversations(tokens), abs=allowed)
