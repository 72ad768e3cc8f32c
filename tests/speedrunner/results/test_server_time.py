"""What each run had of the servers that runs shared."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from serving.meter import LedgerRow
from serving.model_configs import load_model_config
from serving.reconciliation import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.results.server_time import server_seconds, server_uses
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import row
from tests.speedrunner.run_samples import process

USAGE = Usage(1, 0, 1)
FIRST = [row(101.0, USAGE, "readiness"), row(103.0, USAGE), row(107.0, USAGE)]
SECOND = [row(101.5, USAGE, "readiness"), row(103.5, USAGE)]
ACCOUNT = Reconciliation(
    model="m", ledger=Counters(), engine=Counters(), unreported=0, at_most=Counters(), ours=True, since=99.0,
    time=110.0, clients=2,
)  # fmt: skip


def played(
    path: Path, rows: list[LedgerRow], *reconciliations: Reconciliation, url: str | None = None, **by: object
) -> RunData:
    """A run of one process."""
    with RunDirectory.open_for_writing(path) as run:
        sections = {"env": {"name": "babyai"}, "method": {"name": "react"}, "model": {"name": "tiny-random"}}
        run.write_config(yaml.safe_dump({"run": {"dir": str(path)}, "serving": {"url": url}, **sections}))
        run.append_process(
            msgspec.structs.replace(process(load_model_config("tiny-random")), **{"pid": 1, **by})
        )
        for each in rows:
            run.append_request(each)
        for account in reconciliations:
            run.append_reconciliations([account])
    return load(path)


def shares(*runs: RunData) -> dict[str, float]:
    return server_seconds({run.path.name: list(server_uses(run)) for run in runs})


def test_runs_of_one_process_share_what_the_costs_of_both_say(tmp_path: Path) -> None:
    runs = [played(tmp_path / "one", FIRST), played(tmp_path / "two", SECOND)]
    costs = run_costs(runs, [price_book(run) for run in runs])
    found = shares(*runs)
    assert found == {
        run.path.name: pytest.approx(each.total.engine_s) for run, each in zip(runs, costs, strict=True)
    }
    assert sum(found.values()) == pytest.approx(7.0)  # from 100 to 107
    assert found["two"] < 3.0


def test_another_process_has_a_server_of_its_own_unless_both_name_one(tmp_path: Path) -> None:
    one, two = played(tmp_path / "one", FIRST), played(tmp_path / "two", SECOND, pid=2)
    assert shares(one, two) == {"one": pytest.approx(7.0), "two": pytest.approx(3.0)}
    url = "http://127.0.0.1:8000"
    named = (played(tmp_path / f"{pid}", rows, url=url, pid=pid) for pid, rows in ((1, FIRST), (2, SECOND)))
    assert sum(shares(*named).values()) == pytest.approx(7.0)
    elsewhere = played(tmp_path / "elsewhere", SECOND, url=url, host="elsewhere")
    assert shares(elsewhere)["elsewhere"] == pytest.approx(3.0)


def test_a_run_that_went_on_in_another_process_has_a_share_of_both_servers(tmp_path: Path) -> None:
    later = [row(201.0, USAGE, "readiness"), row(204.0, USAGE)]
    run = played(tmp_path / "one", [*FIRST, *later])
    with RunDirectory.open_for_writing(run.path) as directory:
        directory.append_process(
            msgspec.structs.replace(process(load_model_config("tiny-random")), pid=2, started=200)
        )
    other = played(tmp_path / "two", [*later], pid=2, started=200)
    assert [use.server for use in server_uses(load(run.path))] == [("m", "here", "1"), ("m", "here", "2")]
    assert shares(load(run.path), other) == {"one": pytest.approx(7.0 + 2.0), "two": pytest.approx(2.0)}


def test_a_run_whose_server_others_used_that_are_not_there_is_unknown(tmp_path: Path) -> None:
    one, two = played(tmp_path / "one", FIRST, ACCOUNT), played(tmp_path / "two", SECOND, ACCOUNT)
    assert set(shares(one, two)) == {"one", "two"}
    assert shares(one) == {}


def test_a_hosted_model_has_no_server_of_ours(tmp_path: Path) -> None:
    assert shares(played(tmp_path / "one", FIRST[1:])) == {}
