"""The environments' benchmark: what it measures, what it prints, and when it fails."""

from __future__ import annotations

import json
import math

import psutil
import pytest
from typer.testing import CliRunner

from speedrunner.cli.main import app
from speedrunner.measure import bench_envs as envs
from speedrunner.measure.bench_envs import Effort, Figure

NAMES = ["steps/s", "resets/s", "MB"]


class TestMeasure:
    @pytest.mark.parametrize("env", ["babyai", "scienceworld", "crafter"])
    def test_each_figure_stands_beside_upstream_s(self, env: str) -> None:
        before = psutil.Process().children(recursive=True)
        figures = envs.measure({env: Effort(warm_s=0, worlds=1, rounds=2, steps=10)})
        assert [(each.env, each.name) for each in figures] == [(env, name) for name in NAMES]
        for each in figures:
            assert 0 < each.ours < math.inf
            assert each.ratio == pytest.approx(each.ours / each.upstream)
        left = set(psutil.Process().children(recursive=True)) - set(before)
        commands = [" ".join(each.cmdline()) for each in left]
        assert not any("spawn_main" in line or "java" in line for line in commands)

    def test_targets_are_the_stated_ones(self) -> None:
        assert envs.LEAST_RATIO == {
            ("scienceworld", "steps/s"): 6.0,
            ("crafter", "steps/s"): 6.0,
            ("crafter", "resets/s"): 10.0,
        }
        assert envs.MOST_MB == {"scienceworld": 480.0}


MET = Figure("crafter", "steps/s", 1200.0, 150.0, 8.0, 6.0, True)
MISSED = Figure("scienceworld", "MB", 500.0, 1500.0, 1 / 3, 480.0, False)
FREE = Figure("babyai", "MB", 60.0, 70.0, 6 / 7, None, True)


class TestCommand:
    def test_json_is_one_object(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(envs, "measure", lambda: [MET, FREE])
        done = CliRunner().invoke(app, ["bench", "envs", "--json"])
        assert done.exit_code == 0
        found = json.loads(done.stdout)
        assert found["met"] is True
        assert found["figures"][0] == {
            **{"env": "crafter", "name": "steps/s", "ours": 1200.0, "upstream": 150.0},
            **{"ratio": 8.0, "target": 6.0, "met": True},
        }

    def test_a_missed_target_is_said_and_is_the_exit_status(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(envs, "measure", lambda: [MET, MISSED, FREE])
        done = CliRunner().invoke(app, ["bench", "envs"])
        assert done.exit_code == 1
        lines = [line.split() for line in done.stdout.splitlines()]
        assert lines[0] == ["ours", "upstream", "ratio", "target"]
        assert " ".join(lines[1]) == "crafter steps/s 1200.0 150.0 8.00 ratio of 6 or more: met"
        assert " ".join(lines[2]) == "scienceworld MB 500.0 1500.0 0.33 at most 480 MB: MISSED"
        assert " ".join(lines[3]) == "babyai MB 60.0 70.0 0.86"
