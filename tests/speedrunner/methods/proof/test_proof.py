"""The inducer's tools are enough: who programs well makes a library with them that solves what is held out,
from recorded play alone.

The sessions are kept word for word. After an intended change of a script, a prompt or a tool,
`python -m tests.speedrunner.methods.proof.test_proof` writes them anew.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare
from speedrunner.store.records import Termination, Trajectory
from speedrunner.store.run_data import RunData
from tests.speedrunner.methods.proof import babyai_proof, crafter_proof, scienceworld_proof
from tests.speedrunner.methods.proof.study import CONTEXT, SKILLED_CALLS, held_out, play, session_text

GOLDEN = Path(__file__).parents[3] / "data" / "sessions"
STUDIES = {
    "babyai": babyai_proof.STUDY,
    "crafter": crafter_proof.STUDY,
    "scienceworld": scienceworld_proof.STUDY,
}


Played = Callable[[str], RunData]
"""The run of a study; played once."""


def record(name: str, model_config: ModelConfig, tokenizer: ChatTokenizer, folder: Path) -> RunData:
    return asyncio.run(play(STUDIES[name], model_config, tokenizer, folder))


@pytest.fixture(scope="module")
def played(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Played:
    @cache
    def played(name: str) -> RunData:
        return record(name, tiny_model_config, tiny_tokenizer, tmp_path_factory.mktemp(name) / "run")

    return played


pytestmark = pytest.mark.process

every = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "babyai")) for name in STUDIES]
)


@every
def test_a_session_ends_within_its_calls_and_context(name: str, played: Played) -> None:
    ((agent,),) = (sleep.agents for sleep in played(name).sleeps)
    assert agent.termination is Termination.SUBMITTED
    assert len(agent.turns) <= 100
    assert agent.turns[-1].usage.prompt + agent.turns[-1].usage.completion <= CONTEXT


@every
def test_a_session_is_as_its_golden_file(name: str, played: Played) -> None:
    assert session_text(played(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@every
def test_actors_without_skills_hardly_ever_solved_a_task(name: str, played: Played) -> None:
    outcomes = [each.outcome for each in played(name).trajectories()]
    assert sum(each is not None and each.success for each in outcomes) / len(outcomes) < 0.2


class TestWhatIsHeldOut:
    def test_babyais_missions_are_done_in_one_call(self, played: Played) -> None:
        tasks = held_out(played("babyai"))
        assert share(tasks, success) >= 0.9
        assert all(len(each.turns) <= SKILLED_CALLS for each in tasks)

    @pytest.mark.slow
    def test_crafters_worlds_give_a_wood_pickaxe(self, played: Played) -> None:
        def made(task: Trajectory) -> bool:
            found = task.outcome.detail["achievements"] if task.outcome else []
            return {"Collect Wood", "Place Table", "Make Wood Pickaxe"} <= set(found)

        assert share(held_out(played("crafter")), made) >= 0.9

    @pytest.mark.slow
    def test_scienceworlds_things_are_classified_where_one_of_their_kind_was(self, played: Played) -> None:
        tasks = held_out(played("scienceworld"))
        for kind in ("find-non-living-thing", "find-plant", "find-living-thing"):
            assert share([each for each in tasks if each.task.name == kind], success) >= 0.8, kind


def success(task: Trajectory) -> bool:
    return task.outcome is not None and task.outcome.success


def share(tasks: list[Trajectory], holds: Callable[[Trajectory], bool]) -> float:
    return sum(map(holds, tasks)) / len(tasks)


if __name__ == "__main__":
    model_config = load_model_config("tiny-random")
    tokenizer = ChatTokenizer(prepare(model_config, lambda line: None))
    for name in sys.argv[1:] or STUDIES:
        with TemporaryDirectory() as folder:
            text = session_text(record(name, model_config, tokenizer, Path(folder, "run")))
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    sys.exit(0)
