"""An engine that answers its API and does nothing else is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Metrics
from serving.engine.watchdog import patience_for, watch
from serving.errors import ServerFailed, TooManyOpenFiles
from tests.processes import HANGS_S

LOOKS = 15
"""Readings without an alarm after which an engine counts as left alone: more than its patience."""


class Reading:
    """An engine's metrics, as a function of the number of the reading.

    Attributes:
        alarms: the seconds that had run out at each alarm.
        ended: set after `enough` alarms; with none, after `LOOKS` readings.
    """

    def __init__(self, metrics: Callable[[int], str | Exception], enough: int = 1) -> None:
        self.alarms: list[float] = []
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

    async def alarm(self, patience_s: float) -> None:
        self.alarms.append(patience_s)
        if len(self.alarms) == self._enough:
            self.ended.set()


async def watched(
    metrics: Callable[[int], str | Exception],
    in_flight: set[int | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    enough: int = 1,
    first_token_s: float = 0.0,
) -> list[float]:
    """Watch an engine with a patience of 60 ms. Returns the seconds that had run out at each alarm."""
    reading = Reading(metrics, enough)
    monkeypatch.setattr("serving.engine.watchdog.read_metrics", reading.read)
    monkeypatch.setattr("serving.engine.watchdog.FIRST_TOKEN_S", first_token_s)
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
    assert await watched(metrics, in_flight, monkeypatch) == [0.06]


@pytest.mark.parametrize(
    ("metrics", "in_flight"),
    [
        (lambda look: tokens(7), set()),  # nothing to do
        (lambda look: tokens(look), {0}),
        (lambda look: tokens(look) + tokens(7, 1), {0}),
        (lambda look: tokens(look) + tokens(7, 1), {None}),  # any replica may answer
        (lambda look: tokens(7) + f'vllm:kv_cache_usage_perc{{engine="0"}} {look / 1000}\n', {0}),  # prefill
        (lambda look: tokens(7) if look == 1 else TooManyOpenFiles("this process"), {0}),
        # It died and starts again; requests wait for the restart, not for an answer.
        (lambda look: tokens(7) + RUNNING if look == 1 else ServerFailed("nothing answers"), set()),
    ],
)
async def test_an_engine_that_is_well_or_starts_again_is_left_alone(
    metrics: Callable[[int], str | Exception], in_flight: set[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await watched(metrics, in_flight, monkeypatch, enough=0) == []


async def test_patience_doubles_with_each_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await watched(lambda look: tokens(7), {0}, monkeypatch, enough=3) == [0.06, 0.12, 0.24]


@pytest.mark.parametrize(("count", "patience_s"), [(0, 0.12), (1, 0.06)])
async def test_an_engine_gets_longer_for_its_first_token(
    count: int, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await watched(lambda look: tokens(count), {0}, monkeypatch, enough=1, first_token_s=0.12)
    assert found == [patience_s]


@pytest.mark.parametrize(
    ("context", "on_gpu", "seconds"),
    [(16_384, False, 180), (16_384, True, 60), (131_072, True, 131.072), (262_144, True, 262.144)],
)
def test_patience_covers_a_prefill_of_the_whole_context(context: int, on_gpu: bool, seconds: float) -> None:
    assert patience_for(context, on_gpu=on_gpu) == seconds
