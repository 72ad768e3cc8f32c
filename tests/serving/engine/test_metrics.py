"""The engine's counters, read from the text of /metrics, and an engine that answers and does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from serving.engine.capacity import CacheConfig
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Metrics, watch
from serving.errors import ServerFailed
from serving.usage import Counters
from tests.processes import HANGS_S

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


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3", "1e300", "many"])
def test_what_is_no_count_is_an_error(value: str) -> None:
    with pytest.raises(ServerFailed, match=r"/metrics is unusable: "):
        Metrics(TEXT.replace(" 25.0", f" {value}")).counters()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('block_size="32",', "", "has no vllm:block_size"),
        ('block_size="32"', 'block_size="0"', "block_size=0"),
        ('blocks="32768"', 'blocks="many"', "'many'"),
        ('engine="1",mamba', 'engine="x",mamba', "'x'"),
    ],
)
def test_a_cache_that_cannot_be_is_an_error(before: str, after: str, named: str) -> None:
    assert before in TEXT.replace("\\\n", "")
    with pytest.raises(ServerFailed, match=named):
        Metrics(TEXT.replace(before, after)).caches()


def test_each_engine_has_its_part_of_the_blocks_of_which_vllm_shows_the_sum() -> None:
    assert Metrics(TEXT).caches() == [
        CacheConfig(32, 16384, True, 32),
        CacheConfig(640, 9, False, 16, hybrid=True),
    ]


LOOKS = 15
"""Readings without an alarm after which an engine counts as left alone: more than its patience."""


class Reading:
    """An engine's metrics, as a function of the number of the reading.

    Attributes:
        alarms: the number of alarms.
        ended: set after `enough` alarms; with none, after `LOOKS` readings.
    """

    def __init__(self, metrics: Callable[[int], str | Exception], enough: int = 1) -> None:
        self.alarms = 0
        self.ended = asyncio.Event()
        self._metrics = metrics
        self._looks = 0
        self._enough = enough

    async def read(self, endpoint: Endpoint) -> Metrics:
        self._looks += 1
        if self._looks == LOOKS and not self._enough:
            self.ended.set()
        found = self._metrics(self._looks)
        if isinstance(found, Exception):
            raise found
        return Metrics(found)

    async def alarm(self) -> None:
        self.alarms += 1
        if self.alarms == self._enough:
            self.ended.set()


async def watched(
    metrics: Callable[[int], str | Exception],
    is_busy: bool,
    monkeypatch: pytest.MonkeyPatch,
    *,
    enough: int = 1,
) -> int:
    """Watch an engine with a patience of 60 ms. Returns the number of alarms."""
    reading = Reading(metrics, enough)
    monkeypatch.setattr("serving.engine.metrics.read_metrics", reading.read)
    async with asyncio.timeout(HANGS_S):
        async with watch(Endpoint("http://unused/v1"), 0.06, lambda: is_busy, reading.alarm):
            await reading.ended.wait()
    return reading.alarms


def tokens(count: int) -> str:
    return f'vllm:generation_tokens_total{{engine="0"}} {count}\n'


@pytest.mark.parametrize("metrics", [lambda look: tokens(7), lambda look: ServerFailed("nothing answers")])
async def test_each_patience_without_progress_is_an_alarm(
    metrics: Callable[[int], str | Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await watched(metrics, True, monkeypatch, enough=3) == 3


@pytest.mark.parametrize(
    ("metrics", "is_busy"),
    [
        (lambda look: tokens(7), False),  # nothing to do
        (lambda look: tokens(look), True),
        (lambda look: tokens(7) + f'vllm:kv_cache_usage_perc{{engine="0"}} {look / 1000}\n', True),  # prefill
        (lambda look: ServerFailed("nothing answers"), False),  # requests wait for its restart
    ],
)
async def test_an_engine_that_is_well_or_starts_again_is_left_alone(
    metrics: Callable[[int], str | Exception], is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await watched(metrics, is_busy, monkeypatch, enough=0) == 0
