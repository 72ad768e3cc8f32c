"""An engine that answers its API and does nothing else is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Metrics
from serving.engine.watchdog import patience_for, watch
from serving.errors import ServerFailed
from tests.processes import HANGS_S

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
    in_flight: set[int | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    enough: int = 1,
) -> int:
    """Watch an engine with a patience of 60 ms. Returns the number of alarms."""
    reading = Reading(metrics, enough)
    monkeypatch.setattr("serving.engine.watchdog.read_metrics", reading.read)
    async with asyncio.timeout(HANGS_S):
        async with watch(Endpoint("http://unused/v1"), 0.06, lambda: in_flight, reading.alarm):
            await reading.ended.wait()
    return reading.alarms


def tokens(count: int, replica: int = 0) -> str:
    return f'vllm:generation_tokens_total{{engine="{replica}"}} {count}\n'


RUNNING = 'vllm:num_requests_running{engine="0"} 2.0\n'


@pytest.mark.parametrize(
    ("metrics", "in_flight"),
    [
        (lambda look: tokens(7), {0}),
        (lambda look: tokens(7), {None}),
        (lambda look: tokens(7) + RUNNING, set()),  # other clients' requests
        (lambda look: tokens(look) + tokens(7, 1), {0, 1}),  # one of two replicas
        (lambda look: ServerFailed("nothing answers"), {0}),
    ],
)
async def test_an_engine_without_progress_is_an_alarm(
    metrics: Callable[[int], str | Exception], in_flight: set[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await watched(metrics, in_flight, monkeypatch) == 1


@pytest.mark.parametrize(
    ("metrics", "in_flight"),
    [
        (lambda look: tokens(7), set()),  # nothing to do
        (lambda look: tokens(look), {0}),
        (lambda look: tokens(look) + tokens(7, 1), {0}),
        (lambda look: tokens(look) + tokens(7, 1), {None}),  # any replica may answer
        (lambda look: tokens(7) + f'vllm:kv_cache_usage_perc{{engine="0"}} {look / 1000}\n', {0}),  # prefill
        # It died and starts again; requests wait for the restart, not for an answer.
        (lambda look: tokens(7) + RUNNING if look == 1 else ServerFailed("nothing answers"), set()),
    ],
)
async def test_an_engine_that_is_well_or_starts_again_is_left_alone(
    metrics: Callable[[int], str | Exception], in_flight: set[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await watched(metrics, in_flight, monkeypatch, enough=0) == 0


async def test_each_hang_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await watched(lambda look: tokens(7), {0}, monkeypatch, enough=3) == 3


@pytest.mark.parametrize(("context", "seconds"), [(16_384, 300), (1_000_000, 1000)])
def test_patience_covers_a_prefill_of_the_whole_context(context: int, seconds: float) -> None:
    assert patience_for(context) == seconds
