"""The ledger beside a real engine's counters, over requests of every fate."""

from __future__ import annotations

from typing import Any

from serving.engine.metrics import Counters
from speedrunner.measure.bench_accounts import measure
from speedrunner.measure.traffic import ROUGH


async def test_ledger_and_engine_agree_over_300_requests_of_every_fate(engine_server: Any) -> None:
    result = await measure(engine_server.deployment, requests=300, in_flight=16)
    # Nobody else uses the session's server, so the deltas are ours.
    assert result.agrees, result
    assert result.requests == 300
    # Each thing that can go wrong did.
    assert set(result.statuses) >= {"ok", "aborted", "overflow", "failed"}
    assert result.retries > 0
    assert result.roles.keys() >= {"actor", "inducer", "critic", *ROUGH} - {"answered"}
    assert result.roles["inducer"].reasoning > 0
    # To the token where nothing was cut off, within the bound at the end.
    assert result.calm_residual == Counters()
    unreported = sum(account.unreported for account in result.roles.values())
    assert unreported > 0
    assert 0 <= result.residual.prompt <= result.at_most.prompt
    assert 0 <= result.residual.generated <= result.at_most.generated
    assert 0 <= result.finished_by_engine.requests - result.finished.requests <= unreported
