"""Probes of a real vLLM: every call is valid, and the cache gives all that it can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serving.engine.metrics import Counters
from serving.probes.cache import SIBLINGS, probe_cache
from serving.probes.start_check import check_engine
from serving.probes.tool_battery import battery
from serving.probes.tools import probe_tools


@pytest.mark.parametrize("thinking_tokens", [0, 24], ids=["silent", "thinking"])
async def test_all_calls_of_the_battery_are_valid(engine_server: Any, thinking_tokens: int) -> None:
    role = msgspec.structs.replace(engine_server.card.roles.actor, thinking_tokens=thinking_tokens)
    report = await probe_tools(engine_server.model, role, count=60, in_flight=16)
    assert report.problems == []
    assert (report.total.valid, report.total.invalid, report.total.truncated) == (60, 0, 0)
    assert {counts.valid for counts in report.kinds.values()} == {5}
    assert report.constrained.tokens == report.free.tokens > 0
    assert report.overhead is not None
    thought = [row.usage.reasoning for row in engine_server.rows[1:61] if row.usage.completion]
    assert (max(thought) > 0) == (thinking_tokens > 0)
    balance = await engine_server.deployment.balance()
    assert balance.residual == Counters()


async def test_the_cache_gives_all_that_it_can(engine_server: Any) -> None:
    report = await probe_cache(engine_server.deployment, turns=5)
    assert (len(report.turns), len(report.siblings)) == (5, SIBLINGS)
    assert report.expected > 0
    assert report.share_of_maximum >= 0.99
    assert report.met
    assert report.advice == []


async def test_a_run_may_start_on_it(engine_server: Any) -> None:
    await check_engine(engine_server.model, {"phase": "start"})
    rows = [row for row in engine_server.rows if row.labels["role"] == "probe"]
    assert len(rows) == len(battery()) + 2
    assert rows[-1].usage.cached > 0
