"""Requests against an engine that fails in every way that a real one does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.client import Engine, EngineResponse, Prompt, RequireAlive, RetryPolicy
from serving.engine.metrics import read_counters
from serving.engine.one_try import TokenCompletion
from serving.errors import EngineDead, RequestFailed, RequestRefused, ServerDied, SpendingCapReached
from serving.meter import LedgerRow, Meter, Spending
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Prices, Usage
from tests import scripted_engine as scripted
from tests.clocks import Clock
from tests.processes import HANGS_S
from tests.scripted_engine import Answer, Request, Script, ScriptedEngine

FAST = RetryPolicy(tries=3, first_wait_s=0.001, longest_wait_s=0.001, timeout_s=HANGS_S)
BRIEF = msgspec.structs.replace(FAST, outage_s=0.01)
PRICES = Prices(uncached=1.0, cached=0.1, output=10.0)
PROMPT = list(range(100, 170))
OK = scripted.say("done")


class Rig:
    """A scripted engine with a client and the rows it wrote."""

    def __init__(
        self, server: ScriptedEngine, engine: Engine, rows: list[LedgerRow], noted: list[str]
    ) -> None:
        self.server, self.engine, self.rows, self.noted = server, engine, rows, noted

    async def complete(self, **options: Any) -> EngineResponse[TokenCompletion]:
        settings = {"max_tokens": 50, "labels": {"episode": "1"}, **options}
        reply = await self.engine.complete(Prompt(PROMPT), **settings)
        reply.record("ok", reply.usage)
        return reply

    @property
    def statuses(self) -> list[str]:
        return [row.status for row in self.rows]

    async def arrived(self, count: int) -> None:
        while len(self.server.requests) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def serve(tiny_tokenizer: ChatTokenizer) -> Callable[..., Any]:
    @asynccontextmanager
    async def rig(
        script: Script,
        *,
        retry: RetryPolicy = FAST,
        cap_usd: float | None = None,
        require_alive: RequireAlive | None = None,
        hosted: bool = False,
    ) -> AsyncIterator[Rig]:
        rows: list[LedgerRow] = []
        noted: list[str] = []
        with ScriptedEngine(tiny_tokenizer, script) as server:
            meter = Meter(rows.append, PRICES, Spending(cap_usd))
            engine = Engine(
                *(server.endpoint, "tiny-random", meter, retry, require_alive),
                hosted=hosted,
                note_outage=noted.append,
                say=noted.append,
            )
            try:
                yield Rig(server, engine, rows, noted)
            finally:
                await engine.close()

    return rig


async def test_an_answer_comes_with_its_ids_its_usage_and_one_row(serve: Any) -> None:
    async with serve([OK, OK]) as rig:
        first, second = await rig.complete(), await rig.complete()
        ids = first.answer.choices[0].token_ids
        assert first.usage == Usage(prompt=70, cached=0, completion=len(ids))
        assert second.usage == Usage(prompt=70, cached=64, completion=len(ids))
        assert [row.usage for row in rig.rows] == [first.usage, second.usage]
        assert rig.rows[0].request != rig.rows[1].request
        assert {row.retry for row in rig.rows} == {0}
        assert {(row.status, row.wasted, row.error) for row in rig.rows} == {("ok", False, None)}
        assert rig.rows[0].labels == {"episode": "1"}
        assert rig.rows[0].model == "tiny-random"
        counters = await read_counters(rig.engine.endpoint)
        total = rig.engine.meter.total
        assert (counters.prompt, counters.cached, counters.generated) == (
            total.prompt,
            total.cached,
            total.completion,
        )


PASSING = {
    "a full queue": (scripted.refuse(503, "too many requests queued"), "failed", Usage()),
    "an error of the server": (scripted.refuse(500, "internal"), "failed", None),
    "a dying core": (scripted.DYING, "failed", None),
    "a gateway's error": (scripted.refuse(502, "<html>bad gateway</html>"), "failed", None),
    "a lost connection": (scripted.DROP, "failed", None),
    "no JSON": (scripted.GARBAGE, "failed", None),
    "text in another encoding": (scripted.LATIN, "failed", None),
    "no usage": (Answer("x", usage=False), "failed", None),
    "a rate limit": (scripted.rate_limit(0.1), "failed", Usage()),
}


@pytest.mark.parametrize("fault", PASSING)
async def test_a_passing_fault_is_tried_again_and_leaves_a_wasted_row(serve: Any, fault: str) -> None:
    answer, status, usage = PASSING[fault]
    async with serve([answer, OK]) as rig:
        reply = await rig.complete(cacheable=64)
        failed, ok = rig.rows
        assert (failed.cacheable, ok.cacheable) == (None, 64)
        assert (failed.status, failed.wasted, failed.usage) == (status, True, usage)
        assert failed.error
        assert (ok.status, ok.wasted, ok.usage) == ("ok", False, reply.usage)
        assert failed.request == ok.request
        assert (failed.retry, ok.retry) == (0, 1)
        assert rig.engine.meter.requests == 2
        assert rig.engine.meter.unreported == (usage is None)


async def test_a_lasting_fault_ends_as_failed_after_all_tries(serve: Any) -> None:
    async with serve(lambda request: scripted.GARBAGE) as rig:
        with pytest.raises(RequestFailed, match=r"3 times, most recently: unusable answer"):
            await rig.complete()
        assert [row.retry for row in rig.rows] == [0, 1, 2]
        assert rig.noted == []


AWAY = [scripted.refuse(503, "full"), scripted.refuse(529, "overloaded")]


async def test_an_engine_that_is_away_is_waited_for_longer_than_a_few_tries(serve: Any) -> None:
    async with serve([*AWAY * 6, OK]) as rig:
        await rig.complete()
        assert rig.statuses == ["failed"] * 12 + ["ok"]
        assert rig.noted[:2] == ["status 503: full", "status 529: overloaded"]
        assert len(rig.noted) == 12


@pytest.mark.parametrize("answer", AWAY)
async def test_an_engine_that_is_away_is_waited_for_a_bounded_time(serve: Any, answer: Answer) -> None:
    async with serve(lambda request: answer, retry=BRIEF) as rig:
        with pytest.raises(RequestFailed, match=r"failed \d+ times, most recently: "):
            await rig.complete()
        assert len(rig.rows) > 3


async def test_an_answer_that_does_not_come_is_dropped_after_its_time(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def hang_once(request: Request) -> Answer:
        if len(rig.server.requests) > 1:
            return OK
        clock.advance(11.0)  # the HTTP library rounds the end up to a whole second
        return scripted.HANG

    retry = RetryPolicy(tries=2, first_wait_s=0.0, timeout_s=10.0)
    async with serve(hang_once, retry=retry, hosted=True) as rig:
        await rig.complete()
        assert rig.statuses == ["aborted", "ok"]
        assert rig.noted == [
            "no answer within 10 s from tiny-random (serving.request_timeout_s): try 1 of 2 of a request; the"
            " provider may bill each"
        ]
        assert "no answer within 10 s" in str(rig.rows[0].error)


REFUSALS = {
    "a bad request": scripted.refuse(400, "invalid grammar"),
    "an unknown model": scripted.refuse(404, "no such model"),
}


@pytest.mark.parametrize("fault", REFUSALS)
async def test_what_a_retry_would_not_mend_is_raised_at_once(serve: Any, fault: str) -> None:
    answer = REFUSALS[fault]
    async with serve([answer]) as rig:
        with pytest.raises(RequestRefused, match=answer.text):
            await rig.complete()
        (row,) = rig.rows
        assert (row.status, row.wasted, row.usage) == ("failed", True, Usage())


async def test_of_a_hosted_model_one_request_s_failures_say_nothing_of_the_others(
    tiny_tokenizer: ChatTokenizer,
) -> None:
    with ScriptedEngine(tiny_tokenizer, []) as server:
        endpoint = server.endpoint
    engine = Engine(endpoint, "tiny-random", Meter(lambda row: None, PRICES), BRIEF, hosted=True)
    with pytest.raises(RequestFailed, match=r"failed \d+ times"):
        await engine.complete(Prompt(PROMPT), max_tokens=1, labels={})
    await engine.close()


async def test_a_rate_limit_holds_back_every_request_for_as_long_as_asked(serve: Any) -> None:
    async with serve([scripted.rate_limit(0.4), *[OK] * 5]) as rig:
        limited = asyncio.create_task(rig.complete())
        while not rig.rows:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        others = [asyncio.create_task(rig.complete()) for _ in range(4)]
        await asyncio.gather(limited, *others)
        first, *later = [request.received for request in rig.server.requests]
        assert len(later) == 5
        assert min(later) - first >= 0.4


async def test_a_dead_engine_is_told_from_a_failing_one(serve: Any) -> None:
    async with serve([scripted.DEATH], retry=BRIEF) as rig:
        with pytest.raises(EngineDead, match="is gone"):
            await rig.complete()
        assert set(rig.statuses) == {"failed"}


async def die() -> None:
    raise ServerDied("the engine died: killed by SIGKILL")


async def test_a_server_of_ours_that_has_died_ends_the_request_at_once(serve: Any) -> None:
    async with serve([scripted.DEATH], require_alive=die) as rig:
        with pytest.raises(ServerDied, match="killed by SIGKILL"):
            await rig.complete()
        assert rig.statuses == ["failed"]


async def test_a_server_that_still_speaks_is_not_looked_at(serve: Any) -> None:
    refusals = [scripted.refuse(503, "full"), scripted.refuse(502, "a proxy"), scripted.rate_limit(0.1)]
    async with serve([*refusals, OK], require_alive=die) as rig:
        await rig.complete()


async def test_a_cancelled_request_leaves_an_aborted_row(serve: Any) -> None:
    async with serve([scripted.HANG]) as rig:
        task = asyncio.create_task(rig.complete())
        await rig.arrived(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (row,) = rig.rows
        assert (row.status, row.wasted, row.usage) == ("aborted", True, None)
        assert rig.engine.meter.unreported == 1


async def test_fifty_requests_at_once_never_pass_the_spending_cap(serve: Any) -> None:
    # One request costs at most 70 + 50 * 10 micro-USD, and in truth about half of it.
    cap = 7.5 * 570e-6
    async with serve(lambda request: scripted.say("word " * 10), cap_usd=cap) as rig:
        answers = await asyncio.gather(*(rig.complete() for _ in range(50)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, SpendingCapReached)]
        assert len(refused) == 50 - 7
        assert len(rig.server.requests) == len(rig.rows) == 7
        with contextlib.suppress(SpendingCapReached):
            while True:
                await rig.complete()
        assert 7 < len(rig.rows) < 50
        assert cap - 570e-6 < rig.engine.meter.spent_usd <= cap


@given(st.lists(st.lists(st.integers(0, 250_000), max_size=5), max_size=5))
def test_its_json_is_that_of_all_ids(pieces: list[list[int]]) -> None:
    ids: list[int] = []
    prompt = Prompt(ids)
    for piece in pieces:
        ids += piece
        assert json.loads(b"[%b]" % prompt.json()) == ids
        assert json.loads(b"[%b]" % prompt.json()) == ids
        assert len(prompt) == len(ids)
