"""The sandbox's benchmark: what it prints, and when it fails."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.bench import sandbox
from tests.bench.__main__ import app

pytestmark = pytest.mark.process


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "EPISODES", 3)
    monkeypatch.setattr(sandbox, "CALLS", 30)
    monkeypatch.setattr(sandbox, "EPISODE_S", 0.1)
    monkeypatch.setattr(sandbox, "WAIT_TARGET_MS", 1e6)
    monkeypatch.setattr(sandbox, "ROUND_TRIP_TARGET_MS", 1e6)


@pytest.mark.usefixtures("short")
class TestBench:
    def test_json_is_one_object(self) -> None:
        run = CliRunner().invoke(app, ["sandbox", "--json"])
        assert run.exit_code == 0
        found = json.loads(run.stdout)
        assert found["met"] is True
        wait, crossing, plain = found["spreads"]
        for spread in (wait, crossing, plain):
            assert 0 < spread["median"] <= spread["p99"]
        assert [each["value"] for each in found["figures"]] == [
            wait["p99"],
            crossing["median"],
            pytest.approx(crossing["median"] / plain["median"]),
        ]

    def test_a_missed_target_is_said_and_is_the_exit_status(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sandbox, "ROUND_TRIP_TARGET_MS", 0.0)
        run = CliRunner().invoke(app, ["sandbox"])
        assert run.exit_code == 1
        assert "MISSED" in run.stdout


def test_a_spread_is_in_milliseconds() -> None:
    assert sandbox.Spread.of("", [each / 1_000 for each in range(1, 101)]) == sandbox.Spread("", 50.5, 99.0)
