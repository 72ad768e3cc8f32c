"""An engine that answers its API and does nothing else is noticed."""

from __future__ import annotations

import asyncio

import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Metrics, read_metrics
from serving.engine.watchdog import patience_for, watch
from serving.errors import TooManyOpenFiles
from serving.tokens.tokenizer import ChatTokenizer
from tests.processes import HANGS_S
from tests.scripted_engine import ScriptedEngine


class Alarm:
    """Rings are counted; `patience` has the seconds that ran out before each."""

    def __init__(self, enough: int = 1) -> None:
        self.rung = asyncio.Event()
        self.patience: list[float] = []
        self.enough = enough

    @property
    def times(self) -> int:
        return len(self.patience)

    async def ring(self, patience_s: float) -> None:
        self.patience.append(patience_s)
        if self.times >= self.enough:
            self.rung.set()


@pytest.fixture(autouse=True)
def no_longer_patience_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engine.watchdog.FIRST_TOKEN_S", 0.0)


async def test_counters_that_stand_still_while_requests_run_are_an_alarm(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    alarm = Alarm()
    with ScriptedEngine(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.1, lambda: {0}, alarm.ring):
            await alarm.rung.wait()


async def test_an_engine_that_gets_on_or_has_nothing_to_do_is_left_alone(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    alarm, looks = Alarm(), 0
    in_flight = 0
    enough = asyncio.Event()

    def count() -> set[int]:
        nonlocal looks
        looks += 1
        engine.generated += in_flight  # it gets on whenever it has something to do
        if looks == 15:
            enough.set()
        return {0} if in_flight else set()

    with ScriptedEngine(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.12, count, alarm.ring):
            await enough.wait()
            in_flight, looks = 1, 0
            enough.clear()
            await enough.wait()
    assert alarm.times == 0


async def test_an_engine_that_died_and_starts_again_does_not_hang(tiny_tokenizer: ChatTokenizer) -> None:
    alarm, was_busy, looks = Alarm(), asyncio.Event(), 0
    enough = asyncio.Event()

    class Busy(ScriptedEngine):
        @property
        def metrics(self) -> str:
            loop.call_soon_threadsafe(was_busy.set)
            self.generated += 1
            return super().metrics + 'vllm:num_requests_running{engine="0"} 2.0\n'

    def count() -> set[int | None]:
        nonlocal looks
        looks += 1
        if looks == 15:
            enough.set()
        return set()  # requests wait for the restart, not for an answer

    loop = asyncio.get_running_loop()
    with Busy(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.12, count, alarm.ring):
            await was_busy.wait()
            engine.stop()
            looks = 0
            await enough.wait()
    assert alarm.times == 0


@pytest.mark.parametrize("is_closed", [False, True])
async def test_an_api_that_fails_or_refuses_connections_shows_no_progress_either(
    tiny_tokenizer: ChatTokenizer, is_closed: bool
) -> None:
    alarm = Alarm()

    class Broken(ScriptedEngine):
        @property
        def metrics(self) -> str:
            raise ConnectionResetError

    with Broken(tiny_tokenizer, []) as engine:
        if is_closed:
            engine.stop()
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.1, lambda: {0}, alarm.ring):
            await alarm.rung.wait()


async def test_one_replica_that_hangs_is_noticed_though_another_gets_on(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    alarm = Alarm()

    class TwoReplicas(ScriptedEngine):
        @property
        def metrics(self) -> str:
            self.generated += 1
            return super().metrics + 'vllm:generation_tokens_total{engine="1"} 7\n'

    with TwoReplicas(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.1, lambda: {0, 1}, alarm.ring):
            await alarm.rung.wait()
        quiet, looks = Alarm(), 0
        for replica in (0, None):  # a request that any replica may answer waits for none in particular
            enough = asyncio.Event()

            def count(replica: int | None = replica, enough: asyncio.Event = enough) -> set[int | None]:
                nonlocal looks
                looks += 1
                if looks % 15 == 0:
                    enough.set()
                return {replica}

            async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.12, count, quiet.ring):
                await enough.wait()
    assert quiet.times == 0


async def test_an_engine_whose_cache_fills_is_left_alone_while_its_counters_stand_still(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    alarm, looks, enough = Alarm(), 0, asyncio.Event()

    class Prefilling(ScriptedEngine):
        @property
        def metrics(self) -> str:
            return super().metrics + f'vllm:kv_cache_usage_perc{{engine="0"}} {looks / 1000}\n'

    def count() -> set[int]:
        nonlocal looks
        looks += 1
        if looks == 15:
            enough.set()
        return {0}

    with Prefilling(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.12, count, alarm.ring):
            await enough.wait()
    assert alarm.times == 0


async def test_patience_doubles_with_each_hang(tiny_tokenizer: ChatTokenizer) -> None:
    alarm = Alarm(enough=3)
    with ScriptedEngine(tiny_tokenizer, []) as engine:
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.1, lambda: {0}, alarm.ring):
            await alarm.rung.wait()
    assert alarm.patience == [0.1, 0.2, 0.4]


async def test_an_engine_gets_longer_for_its_first_token(
    tiny_tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.engine.watchdog.FIRST_TOKEN_S", 0.3)
    for generated, patience_s in ((0, 0.3), (1, 0.1)):
        alarm = Alarm()
        with ScriptedEngine(tiny_tokenizer, []) as engine:
            engine.generated = generated
            async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.1, lambda: {0}, alarm.ring):
                await alarm.rung.wait()
        assert alarm.patience == [patience_s]


async def test_a_process_without_a_file_descriptor_takes_no_engine_for_hung(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    alarm, looks, enough = Alarm(), 0, asyncio.Event()

    async def read(endpoint: Endpoint) -> Metrics:
        nonlocal looks
        looks += 1
        if looks == 15:
            enough.set()
        if looks > 1:
            raise TooManyOpenFiles("this process has too many open files")
        return await read_metrics(endpoint)

    with ScriptedEngine(tiny_tokenizer, []) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.engine.watchdog.read_metrics", read)
        async with asyncio.timeout(HANGS_S), watch(engine.endpoint, 0.12, lambda: {0}, alarm.ring):
            await enough.wait()
    assert alarm.times == 0


@pytest.mark.parametrize(
    ("context", "on_gpu", "seconds"),
    [(16_384, False, 180), (16_384, True, 60), (131_072, True, 131.072), (262_144, True, 262.144)],
)
def test_patience_covers_a_prefill_of_the_whole_context(context: int, on_gpu: bool, seconds: float) -> None:
    assert patience_for(context, on_gpu=on_gpu) == seconds
