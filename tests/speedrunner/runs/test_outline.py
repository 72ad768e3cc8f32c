"""What runs would do, by condition: counts and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.model_configs import MODELS
from speedrunner.config.compose import compose
from speedrunner.config.grid import Grid
from speedrunner.runs.outline import Outline, outline_runs
from speedrunner.runs.planned_runs import PlannedRun, set_up_runs
from speedrunner.runs.setup import set_up
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import refuse
from tests.scripted_runs import CORRIDOR, Runs, in_process, script

RUNS = """
- {env: babyai, method: [react, speedrunner], model: tiny-random, run.seed: [0, 1, 2]}
- {env: babyai, method: asi, model: tiny-random}
"""
SMALL = ("run.rollouts=20", "run.sleep_every=10", "run.eval_every=20", "run.test_episodes=5")


def planned(folder: Path, *given: str) -> list[PlannedRun]:
    """Return the runs of the list; their folder is next to it."""
    file = folder / "runs.yaml"
    file.write_text(RUNS)
    return set_up_runs(Grid(file, [*SMALL, *given], root=folder / "runs").runs(), plays_here=False)


def outlines(folder: Path, *given: str) -> dict[str, Outline]:
    """Return the outlines by method, and `all`."""
    return {name.split()[-2:][0]: outline for name, outline in outline_runs(planned(folder, *given)).items()}


def test_a_condition_has_one_row_with_the_sums_of_its_runs(tmp_path: Path) -> None:
    found = outlines(tmp_path)
    assert [*found] == ["react", "speedrunner", "asi", "all"]
    assert (found["react"].runs, found["react"].episodes, found["react"].sleeps) == (3, 3 * 2 * 5, 0)
    assert (found["speedrunner"].episodes, found["speedrunner"].sleeps) == (3 * (20 + 2 * 5), 3 * 2)
    assert found["speedrunner"].requests == 3 * (30 * 30 + 2 * 6)


def test_methods_whose_sleeps_have_no_limit_are_named(tmp_path: Path) -> None:
    found = outlines(tmp_path)
    assert (found["asi"].requests, found["asi"].unlimited) == (30 * 30, ["asi"])
    assert (found["speedrunner"].unlimited, found["all"].unlimited) == ([], ["asi"])


@pytest.mark.process
def test_the_command_prints_a_row_for_each_condition_and_their_sum(tmp_path: Path) -> None:
    planned(tmp_path)
    command = ["sweep", str(tmp_path / "runs.yaml"), *SMALL, f"--dir={tmp_path / 'runs'}", "--dry-run"]
    lines = in_process(*command).stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["runs", "babyai", "babyai", "babyai", "all"]
    assert lines[4].split() == ["all", "7", "150", "8", "4,536", "+"]


@pytest.mark.process
def test_a_risk_of_the_prefix_cache_is_a_note(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    flags = "  flags:\n    speculative-config: {method: mtp, num_speculative_tokens: 1}"
    whole = (MODELS / "tiny-hybrid.yaml").read_text()
    assert "  flags:" in whole
    file.write_text(whole.replace("  flags:", flags))
    small = ("env=babyai", "method=react", "run.test_episodes=2")
    notes = one(*small, f"model={file}", f"run.dir={tmp_path / 'run'}").notes
    assert any("(vllm#53912): run `speedrunner bench replay`." in each for each in notes)
    assert not any("vllm#53912" in each for each in one(*small, f"run.dir={tmp_path / 'run'}").notes)


def one(*settings: str) -> Outline:
    return outline_runs([PlannedRun(set_up(compose(settings)))])["all"]


@pytest.mark.process
@pytest.mark.parametrize(("calls", "most"), [(5, 5), (100, 6)])
def test_a_model_config_may_allow_fewer_calls_than_the_method(tmp_path: Path, calls: int, most: int) -> None:
    small = (f"env={CORRIDOR}", "env.train=8", "run.rollouts=8", "run.sleep_every=4", "run.eval_every=4")
    method = ("method=speedrunner", f"method.inducer_calls={calls}", "model=tiny-random")
    found = one(*small, *method, "run.test_episodes=2", f"run.dir={tmp_path / 'run'}")
    episodes = found.requests - 2 * most
    assert (found.episodes, found.sleeps, episodes % found.episodes) == (14, 2, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
async def test_of_a_run_that_is_there_what_is_left_is_counted(corridor: Runs) -> None:
    run = corridor(script(lambda request: refuse(404, "no")), "run.rollouts=0")
    await run.play()

    def left(*more: str) -> tuple[int, int, int]:
        found = one(*run.overrides(*more))
        return found.runs, found.finished, found.episodes

    assert left() == (0, 1, 0)
    assert left("run.retry_faults=true") == (1, 0, 2)
    with pytest.raises(RunDirectoryError, match=r"another configuration: run\.seed"):
        left("run.seed=3")
