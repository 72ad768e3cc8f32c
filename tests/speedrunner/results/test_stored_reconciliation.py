"""Ledgers beside the accounts that a run's processes stored."""

from __future__ import annotations

from pathlib import Path

from serving.reconciliation import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.results.cost_text import reconciliation_text
from speedrunner.results.stored_reconciliation import stored_reconciliations
from tests.scripted_runs import ScriptedRun
from tests.speedrunner.results.ledgers import ROWS, row, stored


def account(time: float, *counts: int, in_passing: bool = False) -> Reconciliation:
    ledger = Counters(*counts)
    return Reconciliation(
        model="m",
        ledger=ledger,
        engine=ledger,
        unreported=0,
        at_most=Counters(),
        ours=True,
        since=0.0,
        time=time,
        in_passing=in_passing,
    )


def test_stored_accounts_are_compared_process_by_process(tmp_path: Path) -> None:
    killed = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 3))]
    ended = [row(11.0, Usage(1, 0, 1), "readiness"), row(12.0, Usage(20, 5, 4))]
    run = stored(tmp_path / "run", killed + ended, account(13.0, 21, 5, 5))
    found = stored_reconciliations([run])
    assert (found.equal, found.without) == (True, 1)
    assert "1 of 1 have the ledger's sums; 1 of these agree" in reconciliation_text(found)


def test_of_a_killed_process_the_last_account_in_passing_is_that_of_the_ledger_until_then(
    tmp_path: Path,
) -> None:
    killed = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 3)), row(4.0, Usage(30, 5, 3))]
    early, late = (
        account(time, *counts, in_passing=True) for time, counts in ((1.5, (1, 0, 1)), (3.0, (11, 5, 4)))
    )
    found = stored_reconciliations([stored(tmp_path / "run", killed, early, late)])
    assert (found.equal, found.without, [each.time for each in found.reconciliations]) == (True, 0, [3.0])
    last = account(5.0, 41, 10, 7)
    ended = stored_reconciliations([stored(tmp_path / "ended", killed, early, late, last)])
    assert (ended.equal, [each.time for each in ended.reconciliations]) == (True, [5.0])


def test_a_kill_may_come_while_a_sweep_notes_its_accounts(tmp_path: Path) -> None:
    rows = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 3))]
    early, late = (
        account(time, *counts, in_passing=True) for time, counts in ((1.5, (2, 0, 2)), (3.0, (22, 10, 8)))
    )
    runs = [stored(tmp_path / "one", rows, late), stored(tmp_path / "other", rows, early)]
    found = stored_reconciliations(runs)
    assert (found.equal, [each.time for each in found.reconciliations]) == (True, [3.0])


def test_an_account_that_the_ledger_does_not_give_is_told(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", ROWS, account(7.0, 9, 9, 9))
    found = stored_reconciliations([run])
    assert found.equal is False
    assert (
        "1 of 1 DIFFER from the ledger's sums. The first: prompt 1801 in the ledger, 9 stored"
        in reconciliation_text(found)
    )


def test_the_one_account_of_a_sweep_is_that_of_all_its_runs(tmp_path: Path) -> None:
    reconciliation = account(9.0, 22, 10, 6)
    rows = [row(1.0, Usage(1, 0, 1), "readiness"), row(2.0, Usage(10, 5, 2))]
    runs = [stored(tmp_path / name, rows, reconciliation) for name in ("one", "other")]
    assert stored_reconciliations(runs).equal is True
    assert stored_reconciliations(runs[:1]).equal is False


def test_without_an_account_nothing_is_said_to_be_equal(tmp_path: Path) -> None:
    found = stored_reconciliations([stored(tmp_path / "run", ROWS)])
    assert found.equal is None
    assert "not measured: no process reached its end; 1 uses of an engine stored none" in reconciliation_text(
        found
    )


def test_a_real_run_s_ledger_is_its_stored_account(learnt: ScriptedRun) -> None:
    found = stored_reconciliations([learnt.data])
    assert (found.equal, found.without) == (True, 0)
