"""Runs to play: what they would do, and how they are dealt out to servers and jobs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from speedrunner.config.compose import compose
from speedrunner.config.grid import Grid
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.planned_runs import (
    PlannedRun,
    describe_plan,
    parse_part,
    set_up_runs,
    split_by_server,
    split_into_parts,
)
from speedrunner.runs.setup import set_up
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import refuse
from tests.scripted_runs import CORRIDOR, Runs, script

pytestmark = pytest.mark.process


TWO_MODELS = """
- env: babyai
  model: [tiny, tiny-random]
  run.seed: [0, 1, 2, 3]
  run.in_flight: 16
"""
CHAINS = """
- {env: babyai, model: tiny, method: asi, run.seed: [0, 1, 2]}
- {env: babyai, model: tiny, method: asi, run.seed: [0, 1, 2], run.rollouts: 0, run.start_from: {}}
"""


def listed(folder: Path, text: str, *given: str) -> list[PlannedRun]:
    file = folder / "runs.yaml"
    file.write_text(text)
    return set_up_runs(Grid(file, given).runs())


def names(dealt: list[list[PlannedRun]]) -> list[list[str]]:
    return [[each.name for each in part] for part in dealt]


def models(dealt: list[list[PlannedRun]]) -> list[set[str]]:
    return [{each.setup.model_config.name for each in part} for part in dealt]


@pytest.mark.parametrize("number", [None, 2, 3, 5, 8])
def test_every_run_is_in_one_part_with_others_of_its_model(tmp_path: Path, number: int | None) -> None:
    runs = listed(tmp_path, TWO_MODELS)
    dealt = split_into_parts(runs, number)
    assert sorted(chain.from_iterable(names(dealt))) == sorted(each.name for each in runs)
    assert all(len(model) == 1 for model in models(dealt))
    assert number is None or len(dealt) == number


def test_a_run_is_with_the_one_that_it_begins_with_and_behind_it(tmp_path: Path) -> None:
    runs = listed(tmp_path, CHAINS)
    for part in split_into_parts(runs, 3):
        first, second = part
        assert second.after == first.path


def test_runs_are_dealt_out_in_turn(tmp_path: Path) -> None:
    runs = listed(tmp_path, "- {model: tiny, run.seed: [0, 1, 2, 3, 4]}")
    assert [[each.setup.config.run.seed for each in part] for part in split_into_parts(runs, 2)] == [
        [0, 2, 4],
        [1, 3],
    ]


FOUR = "- {model: tiny, run.seed: [0, 1, 2, 3], run.in_flight: 16}\n"


@pytest.mark.parametrize(
    ("text", "number", "at_once", "sizes"),
    [
        ("- {model: tiny, model.prefix_caching: [true, false]}", None, 64, [1, 1]),  # two servers
        (f"{FOUR}- {{model: tiny-random, run.seed: 0}}", 3, 64, [2, 2, 1]),
        (FOUR, None, 64, [4]),
        (FOUR, None, 16, [2, 2]),
        (FOUR, None, 1, [1, 1, 1, 1]),
    ],
)
def test_there_are_as_many_as_the_runs_keep_busy(
    tmp_path: Path, text: str, number: int | None, at_once: int, sizes: list[int]
) -> None:
    assert [len(part) for part in split_into_parts(listed(tmp_path, text), number, at_once)] == sizes


def test_whoever_knows_their_number_deals_them_out_alike(tmp_path: Path) -> None:
    wide = "- {model: tiny, run.seed: [0, 1, 2, 3], run.in_flight: 64}\n"
    narrow = "- {model: tiny-random, run.seed: [0, 1, 2, 3], run.in_flight: 1}\n"
    runs = listed(tmp_path, narrow + wide)
    dealt = split_into_parts(runs)
    assert names(split_into_parts(runs, len(dealt))) == names(dealt)


@pytest.mark.parametrize(
    ("text", "number", "limits"),
    [(TWO_MODELS, 1, "2 at least.* and 8 at most"), (TWO_MODELS, 9, "8 at most"), (CHAINS, 4, "3 at most")],
)
def test_too_few_and_too_many_are_refused_with_what_can_be(
    tmp_path: Path, text: str, number: int, limits: str
) -> None:
    """Runs that begin with each other count as one."""
    with pytest.raises(InvalidConfig, match=f"^{number} parts are not possible: .*{limits}"):
        split_into_parts(listed(tmp_path, text), number)


def test_a_part_is_written_with_its_number_and_how_many_there_are() -> None:
    assert parse_part("2/8") == (2, 8)
    assert parse_part("8/8") == (8, 8)


@pytest.mark.parametrize(
    "text", ["", "2", "0/8", "9/8", "2/", "/8", "-1/8", "1/0", "1/2/3", "a/b", "1/9999999"]
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"--part {text}: write K/N"):
        parse_part(text)


def test_runs_of_a_model_are_played_on_one_server_in_the_order_of_the_models(tmp_path: Path) -> None:
    groups = split_by_server(listed(tmp_path, TWO_MODELS))
    assert models(groups) == [{"tiny"}, {"tiny-random"}]


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


def rows(runs: list[PlannedRun]) -> dict[str, list[str]]:
    """Return the counts in the table by method, and `all`."""
    cells = (line.split() for line in describe_plan(runs))
    tails = (line for line in cells if line[-1].replace(",", "").isdigit())
    return {line[1] if len(line) > 5 else line[0]: line[-4:] for line in tails}


def test_a_condition_has_one_row_with_the_sums_of_its_runs_and_methods_without_a_limit_are_named(
    tmp_path: Path,
) -> None:
    runs = planned(tmp_path)
    assert rows(runs) == {
        "react": ["3", str(3 * 2 * 5), "0", "900"],
        "speedrunner": ["3", str(3 * (20 + 2 * 5)), "6", f"{3 * (30 * 30 + 2 * 6):,}"],
        "asi": ["1", "30", "2", "900"],
        "all": ["7", "150", "8", "4,536"],
    }
    assert "Requests of sleeps without a limit are not counted (asi)." in list(describe_plan(runs))


def one(*settings: str) -> PlannedRun:
    return PlannedRun(set_up(compose(settings)))


@pytest.mark.parametrize(("calls", "most"), [(5, 5), (100, 6)])
def test_a_model_config_may_allow_fewer_calls_than_the_method(tmp_path: Path, calls: int, most: int) -> None:
    small = (f"env={CORRIDOR}", "env.train=8", "run.rollouts=8", "run.sleep_every=4", "run.eval_every=4")
    method = ("method=speedrunner", f"method.inducer_calls={calls}", "model=tiny-random")
    run = one(*small, *method, "run.test_episodes=2", f"run.dir={tmp_path / 'run'}")
    ((_, episodes, sleeps, requests),) = rows([run]).values()
    assert (episodes, sleeps, (int(requests) - 2 * most) % 14) == ("14", "2", 0)
    assert list(tmp_path.iterdir()) == []


async def test_of_a_run_that_is_there_what_is_left_is_counted(corridor: Runs) -> None:
    run = corridor(script(lambda request: refuse(404, "no")), "run.rollouts=0")
    await run.play()

    def left(*more: str) -> list[str]:
        return list(describe_plan([one(*run.overrides(*more))]))

    assert left()[-1] == "1 finished runs are not counted."
    assert left("run.retry_faults=true")[1].split()[-4:-1] == ["1", "2", "0"]
    with pytest.raises(RunDirectoryError, match=r"another configuration: run\.seed"):
        left("run.seed=3")
