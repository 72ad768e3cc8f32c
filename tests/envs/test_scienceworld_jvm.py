"""ScienceWorld's simulator answers as in recordings of the original."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.scienceworld_jvm import Simulator

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
PROBES: list[dict[str, Any]] = json.loads((DATA / "scienceworld_probes.json").read_text())["probes"]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    started = Simulator()
    yield started
    started.close()


def check(simulator: Simulator, step: dict[str, Any], action: str) -> None:
    text = simulator.step(action)
    if step["stable_observation"]:
        assert text == step["observation"], action
    elif "options_sorted" in step:
        assert sorted(line.partition("\t")[2] for line in text.splitlines()[1:]) == step["options_sorted"]
    else:
        assert text in step["observation_variants"], action
    assert simulator.moves() == step["moves"], action
    score = simulator.score()
    if step["stable_score"]:
        assert score == step["score_raw"], action
    else:
        assert round(100 * score) in [variant for variant, _ in step["score_completed_variants"]], action


class TestRecordingsOfTheOriginal:
    """Those of whole gold paths are played in `test_scienceworld.py`."""

    @pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe["label"])
    def test_probes_of_its_quirks_give_the_same_texts_scores_and_moves(
        self, simulator: Simulator, probe: dict[str, Any]
    ) -> None:
        simulator.load(probe["task"], probe["variation"])
        options: list[str] = []
        for step in probe["steps"]:
            action = step["action"]
            if "answer_for" in step:
                action = str(options.index(step["answer_for"]))
            check(simulator, step, action)
            options = step.get("options_sorted", options)

    def test_they_use_no_more_than_480_megabytes(self, simulator: Simulator) -> None:
        assert 50_000_000 < simulator.resident_bytes() <= 480_000_000
