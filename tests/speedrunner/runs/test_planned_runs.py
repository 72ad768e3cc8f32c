"""Runs that are dealt out to servers and jobs: every run once, those that need each other together."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from speedrunner.config.grid import Grid
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.planned_runs import (
    PlannedRun,
    parse_part,
    set_up_runs,
    split_by_server,
    split_into_parts,
)

pytestmark = pytest.mark.process

MODELS = """
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
    runs = listed(tmp_path, MODELS)
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


@pytest.mark.parametrize("number", [1, 9])
def test_too_few_and_too_many_are_refused_with_what_can_be(tmp_path: Path, number: int) -> None:
    with pytest.raises(InvalidConfig, match=f"^{number} parts are not possible: 2 at least.* and 8 at most"):
        split_into_parts(listed(tmp_path, MODELS), number)


def test_runs_that_begin_with_each_other_count_as_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="3 at most"):
        split_into_parts(listed(tmp_path, CHAINS), 4)


def test_a_part_is_written_with_its_number_and_how_many_there_are() -> None:
    assert parse_part("2/8") == (2, 8)
    assert parse_part("8/8") == (8, 8)


@pytest.mark.parametrize(
    "text", ["", "2", "0/8", "9/8", "2/", "/8", "-1/8", "1/0", "1/2/3", "a/b", "1/9999999"]
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"--part {text}: write K/N"):
        parse_part(text)


class TestModelsThatPlayEachOther_sLibraries:
    TEXT = """
    - &source
      env: babyai
      method: asi
      model: [tiny, tiny-random]
    - <<: *source
      run.start_from: {model: [tiny, tiny-random]}
      run.rollouts: 0
    """

    def test_every_run_comes_after_its_source_with_as_few_servers_as_possible(self, tmp_path: Path) -> None:
        groups = split_by_server(listed(tmp_path, self.TEXT))
        played: list[str] = []
        for group in groups:
            assert len({each.setup.model_config.name for each in group}) == 1
            own = {each.path for each in group}
            assert all(run.after is None or run.after in {*played, *own} for run in group)
            played += own
        assert [group[0].setup.model_config.name for group in groups] == ["tiny", "tiny-random", "tiny"]
        assert len(played) == len({*played}) == 6

    def test_one_model_has_one_server(self, tmp_path: Path) -> None:
        (group,) = split_by_server(listed(tmp_path, self.TEXT, "model=tiny-hybrid"))
        assert len(group) == 2
