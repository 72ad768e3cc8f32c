"""The families, their variations and the split are the paper's and the simulator's."""

from __future__ import annotations

import hashlib

import pytest

from envs import InvalidOption, Task, make, splits
from envs.scienceworld import FAMILIES, VARIATIONS, Simulator, variations_for_test, variations_for_training

ELECTRICITY = {
    "power-component",
    "power-component-renewable-vs-nonrenewable-energy",
    "test-conductivity",
    "test-conductivity-of-unknown-substances",
}
CLASSIFICATION = {"find-living-thing", "find-non-living-thing", "find-plant", "find-animal"}


def test_the_tasks_are_upstream_s_in_upstream_s_families() -> None:
    from scienceworld.constants import ID2TASK

    assert [name for names in FAMILIES.values() for name in names] == list(ID2TASK.values())
    for number, name in ID2TASK.items():
        assert name in FAMILIES[int(number.partition("-")[0])]


@pytest.mark.slow
def test_variations_and_their_division_are_the_simulator_s() -> None:
    simulator = Simulator()
    for name, number in VARIATIONS.items():
        simulator.load(name, 0)
        assert simulator._interface.getTaskMaxVariations(name) == number
        assert list(simulator._interface.getVariationsTrain()) == list(variations_for_training(name))
        assert list(simulator._interface.getVariationsTest()) == list(variations_for_test(name))
    simulator.close()


class TestSplits:
    @pytest.mark.parametrize(("family", "names"), [(3, ELECTRICITY), (4, CLASSIFICATION)])
    def test_200_training_and_30_test_worlds_are_disjoint(self, family: int, names: set[str]) -> None:
        split = splits("scienceworld", family=family)
        assert (len(split.train), len(split.test)) == (200, 30)
        assert len({*split.train, *split.test}) == 230
        assert {task.name for task in split.train} == names
        assert {task.env for task in split.train + split.test} == {"scienceworld"}
        assert all(task.index in variations_for_training(task.name) for task in split.train)
        assert all(task.index in variations_for_test(task.name) for task in split.test)

    @pytest.mark.parametrize(
        ("family", "first", "digest"),
        [
            (3, Task("scienceworld", "test-conductivity-of-unknown-substances", 184), "a5d4a792df4c93f0"),
            (4, Task("scienceworld", "find-animal", 114), "5c21727736f3bcd6"),
        ],
    )
    def test_they_are_fixed(self, family: int, first: Task, digest: str) -> None:
        split = splits("scienceworld", family=family)
        assert split.train[0] == first
        pairs = [(task.name, task.index) for task in split.train + split.test]
        assert hashlib.sha256(str(pairs).encode()).hexdigest()[:16] == digest
        assert split == splits("scienceworld", family=family, description="full")

    @pytest.mark.parametrize("family", [None, 0, 11])
    def test_without_a_family_there_is_no_split(self, family: int | None) -> None:
        make("scienceworld", family=family)
        with pytest.raises(
            InvalidOption, match=rf"family=3 \(electricity\) or family=4 .* 1 to 10, not {family}"
        ):
            splits("scienceworld", family=family)
