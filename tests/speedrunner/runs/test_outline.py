"""What a run would do, told before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.config.compose import compose
from speedrunner.runs.outline import outline
from speedrunner.runs.setup import set_up
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import refuse
from tests.scripted_runs import CORRIDOR, Runs, script

pytestmark = pytest.mark.process

SMALL = ("env.train=8", "run.rollouts=8", "run.sleep_every=4", "run.eval_every=4", "run.test_episodes=2")


def told(folder: Path, *more: str) -> list[str]:
    settings = [f"env={CORRIDOR}", "model=tiny-random", f"run.dir={folder / 'run'}", *SMALL, *more]
    return list(outline(set_up(compose(settings))))


def table(lines: list[str]) -> dict[str, list[str]]:
    """Its rows, by their first word."""
    rows = (line.split() for line in lines if line.split()[0] in ("wake", "evaluate", "sleep", "all"))
    return {name: cells for name, *cells in rows}


def test_it_counts_steps_episodes_and_requests_and_makes_nothing(tmp_path: Path) -> None:
    found = table(told(tmp_path, "method=speedrunner", "method.inducer_calls=5"))
    each = int(found["wake"][2])
    assert found == {
        "wake": ["2", "8", f"{each}", f"{8 * each}"],
        "evaluate": ["3", "6", f"{each}", f"{6 * each}"],
        "sleep": ["2", "-", "5", "10"],
        "all": ["7", f"{14 * each + 10}"],
    }
    assert list(tmp_path.iterdir()) == []


def test_a_model_config_may_allow_fewer_calls_than_the_method(tmp_path: Path) -> None:
    assert table(told(tmp_path, "method=speedrunner"))["sleep"][2] == "6"  # of 100


async def test_of_a_run_that_there_is_it_tells_what_is_left(corridor: Runs) -> None:
    run = corridor(script(lambda request: refuse(404, "no")), "run.rollouts=0")
    await run.play()

    def left(*more: str) -> list[str]:
        return list(outline(set_up(compose(run.overrides(*more)))))

    assert left()[1] == "it exists; 1 of its 1 steps are finished; remaining:"
    assert table(left())["evaluate"][:2] == ["0", "-"]
    assert table(left("run.retry_faults=true"))["evaluate"][:2] == ["1", "2"]
    with pytest.raises(RunDirectoryError, match=r"another configuration: run\.seed"):
        left("run.seed=3")
