"""What unfinished runs will take, from finished runs in the same folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.cluster.estimate import estimate
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.runs.outline import Outline
from speedrunner.store.run_data import load
from tests.speedrunner.store.test_stored_format import STORED

OWN = condition_name(load(STORED).settings)


def outline(condition: ConditionName | None, episodes: int) -> Outline:
    return Outline(condition, 1, 0, episodes, sleeps=0, requests=0, unlimited=[], notes=[])


def test_a_finished_run_of_the_environment_and_model_is_scaled_by_episodes(tmp_path: Path) -> None:
    shutil.copytree(STORED, tmp_path / "played")
    usd = run_costs(run := load(STORED), price_book(run)).total.usd
    assert usd
    rows = [outline(OWN, len(run.episodes)), outline(replace(OWN, method="asi"), 2 * len(run.episodes))]
    line = estimate([*rows, outline(None, 99)], tmp_path)
    assert line == f"GPU-hours: 0, USD: {3 * usd:.3g}, scaled by episodes from played."  # it ran on a CPU


@pytest.mark.parametrize("other", [replace(OWN, env="crafter"), replace(OWN, model="tyni")])
def test_there_is_no_estimate_if_a_condition_has_no_such_run(tmp_path: Path, other: ConditionName) -> None:
    shutil.copytree(STORED, tmp_path / "played")
    assert estimate([outline(OWN, 5), outline(other, 5)], tmp_path) is None


def test_unfinished_runs_are_no_source(tmp_path: Path) -> None:
    shutil.copytree(STORED, tmp_path / "played")
    (tmp_path / "played" / "state.json").write_text('{"format": 2, "secret": "s"}')
    assert estimate([outline(OWN, 5)], tmp_path) is None
    assert estimate([outline(OWN, 5)], tmp_path / "none") is None
