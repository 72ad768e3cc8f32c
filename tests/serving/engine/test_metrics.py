"""The engine's counters, read from the text of /metrics."""

from __future__ import annotations

import pytest

from serving.engine.capacity import CacheConfig
from serving.engine.metrics import Metrics
from serving.errors import ServerFailed
from serving.usage import Counters

TEXT = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="tiny-random"} 1.0e+06
vllm:prompt_tokens_total{engine="1",model_name="tiny-random"} 7.0
# HELP vllm:prompt_tokens_created Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="tiny-random"} 1.7e+09
# HELP vllm:prompt_tokens_cached_total Number of cached prompt tokens.
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{engine="0",model_name="tiny-random"} 640.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny-random"} 25.0
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0",num_gpu_blocks="32768"} 1.0
vllm:cache_config_info{block_size="640",enable_prefix_caching="False",engine="1",\
mamba_cache_mode="align",num_gpu_blocks="18",prefix_match_unit="16"} 1.0
"""


def test_counters_are_summed_over_engines() -> None:
    assert Metrics(TEXT).counters() == Counters(prompt=1_000_007, cached=640, generated=25)


def test_a_missing_counter_is_an_error_and_never_zero() -> None:
    with pytest.raises(ServerFailed, match="has no vllm:generation_tokens_total"):
        Metrics(TEXT.replace("generation_tokens_total", "renamed_total")).counters()


def test_each_engine_has_its_part_of_the_blocks_of_which_vllm_shows_the_sum() -> None:
    assert Metrics(TEXT).caches() == [
        CacheConfig(32, 16384, True, 32),
        CacheConfig(640, 9, False, 16, hybrid=True),
    ]


USE = """\
vllm:generation_tokens_total{{engine="0"}} 7
vllm:generation_tokens_total{{engine="1"}} 5
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:kv_cache_usage_perc{{engine="1"}} {}
"""


def test_the_used_share_of_a_cache_is_activity_of_its_engine_alone() -> None:
    before, after = (Metrics(USE.format(share)).activity().done for share in (0.5, 0.375))
    assert before == {None: 12.75, 0: 7.25, 1: 5.5}
    assert {replica for replica in before if before[replica] != after[replica]} == {None, 1}
