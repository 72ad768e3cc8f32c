"""The tables of `speedrunner report` and what it prints, on an invented sweep and on damaged runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev

import pandas
import pytest

from serving.meter import LedgerRow
from speedrunner.pages.report_page import Collected, collect, describe
from speedrunner.results.writing import table_files
from speedrunner.store.files import write_folder
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import PRICES
from tests.synthetic_sweep import write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two seeds."""
    out = tmp_path_factory.mktemp("sweep") / "runs"
    write_sweep(out, seeds=2)
    return out


def collected(*folders: Path, prices: str | None = None) -> Collected:
    return collect(folders, prices, lambda step: None)


@pytest.fixture(scope="module")
def made(sweep: Path) -> Path:
    """The folder of its tables."""
    found = collected(sweep)
    write_folder(sweep.parent, table_files(found.tables))
    return sweep.parent / "tables"


def priced(rows: Iterable[LedgerRow]) -> float:
    """Return the USD of requests by the formula of the paper's Appendix A.3."""
    usages = [row.usage for row in rows if row.usage is not None and not row.wasted]
    amounts = [
        (each.prompt - each.cached) * PRICES.uncached
        + each.cached * PRICES.cached
        + each.completion * PRICES.output
        for each in usages
    ]
    return sum(amounts) / 1e6


def test_performance_is_what_the_rows_and_ledgers_of_the_runs_say(sweep: Path, made: Path) -> None:
    table = pandas.read_csv(made / "performance.csv")
    for row in table.to_dict("records"):
        seeds = []
        for seed in (0, 1):
            run = load(sweep / f"babyai-{row['method']}-gpt-5.4-mini-seed{seed}")
            played = [
                each for each in run.rows if each.phase == "test" and each.checkpoint == row["checkpoint"]
            ]
            spent: dict[str | None, list[LedgerRow]] = {}
            for request in run.requests:
                spent.setdefault(request.labels.get("episode"), []).append(request)
            share = sum(
                priced(spent[f"sleep/{sleep.sleep:04d}"]) / sleep.rollouts
                for sleep in run.sleeps
                if sleep.sleep == played[0].policy
            )
            seeds.append({
                "score": fmean(each.score for each in played if each.score is not None),
                "llm_calls": fmean(each.llm_calls for each in played),
                "actions": fmean(each.actions for each in played),
                "cached": fmean(each.usage.cached for each in played),
                "uncached": fmean(each.usage.prompt - each.usage.cached for each in played),
                "output": fmean(each.usage.completion for each in played),
                "cost_usd": fmean(priced(spent[each.episode]) for each in played) + share,
            })  # fmt: skip
        for name in seeds[0]:
            assert row[name] == pytest.approx(fmean(each[name] for each in seeds)), name
        assert row["score_std"] == pytest.approx(stdev(each["score"] for each in seeds))
        assert (row["seeds"], row["episodes"], row["unscored"]) == (2, 6, 0)
    assert {(row.method, row.checkpoint) for row in table.itertuples()} == {
        (method, point) for method in ("react", "speedrunner") for point in (0, 2, 4)
    }


def test_a_run_alone_and_twice_named_is_a_sweep_too(sweep: Path) -> None:
    run = next(sweep.iterdir())
    found = collected(run, Path(f"{run}/"), sweep / ".." / "runs" / run.name)
    assert (len(found.runs), len(found.conditions), found.problems) == (1, 1, [])


def test_an_unfinished_run_is_named(sweep: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(sweep, tmp_path / "runs"))
    run = sorted(copied.iterdir())[0]
    (run / "evaluations" / "0004.jsonl").unlink()
    rows = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    (run / "episodes.jsonl").write_text("".join(row for row in rows if "test/0004" not in row))
    found = collected(copied)
    assert found.problems == []
    assert f"1 run without a planned evaluation: {run}" in describe(found)
