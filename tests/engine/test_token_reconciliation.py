"""The ledger beside a real engine's counters, over requests of every fate."""

from __future__ import annotations

from typing import Any

from tests.bench.reconciliation_bench import compare_reconciliations
from tests.bench.traffic import ROUGH

REQUESTS = 36
CUT_OFF = ("cut off (difference)", "cut off, at most")


async def test_ledger_and_engine_agree_over_requests_of_every_fate(engine_server: Any) -> None:
    found = await compare_reconciliations(engine_server.deployment, REQUESTS, 12, lambda line: None)
    # Nobody else uses the session's server, so the differences are ours.
    assert found.met, found
    assert found.facts["requests"] == REQUESTS
    # Each thing that can go wrong did.
    assert set(found.facts["statuses"]) >= {"ok", "aborted", "overflow", "failed"}
    assert found.facts["retries"] > 0
    reconciliations = {each["role"]: each for each in found.tables[0].rows}
    assert reconciliations.keys() >= {"actor", "inducer", "critic", *ROUGH} - {"answered"}
    assert reconciliations["inducer"]["reasoning"] > 0
    # To the token where nothing was cut off, within the bound at the end.
    sums = {each["tokens"]: each for each in found.tables[1].rows}
    calm, residual, most = (sums[each] for each in ("first half (difference)", *CUT_OFF))
    assert (calm["prompt"], calm["cached"], calm["generated"]) == (0, 0, 0)
    unreported = sum(account["unreported"] for account in reconciliations.values())
    assert unreported > 0
    assert 0 <= residual["prompt"] <= most["prompt"]
    assert 0 <= residual["generated"] <= most["generated"]
    by_ledger, by_engine = sums["finished, ledger"], sums["finished, engine"]
    assert 0 <= by_engine["requests"] - by_ledger["requests"] <= unreported
