"""The inducer's tools are enough: who programs well makes a library with them that solves what is held out,
from recorded play alone.

The session is kept word for word. After an intended change of the script, a prompt or a tool,
`pytest --update` writes it again.
"""

from __future__ import annotations

import asyncio

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.store.records import Termination, Trajectory
from speedrunner.store.run_data import RunData
from tests.golden_tables import Golden
from tests.speedrunner.methods.proof.babyai_proof import STUDY
from tests.speedrunner.methods.proof.study import CONTEXT, SKILLED_CALLS, held_out, play, session_text

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def played(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> RunData:
    """The run of the study."""
    folder = tmp_path_factory.mktemp("babyai") / "run"
    return asyncio.run(play(STUDY, tiny_model_config, tiny_tokenizer, folder))


def test_a_session_ends_within_its_calls_and_context(played: RunData) -> None:
    ((agent,),) = (sleep.agents for sleep in played.sleeps)
    assert agent.termination is Termination.SUBMITTED
    assert len(agent.turns) <= 100
    assert agent.turns[-1].usage.prompt + agent.turns[-1].usage.completion <= CONTEXT


def test_a_session_is_as_its_golden_file(played: RunData, golden: Golden) -> None:
    golden("sessions/babyai.txt", session_text(played))


def test_the_library_does_held_out_missions_in_one_call_that_actors_hardly_ever_solved(
    played: RunData,
) -> None:
    tasks = held_out(played)
    assert share([*played.trajectories()]) < 0.2
    assert share(tasks) >= 0.9
    assert all(len(each.turns) <= SKILLED_CALLS for each in tasks)


def share(tasks: list[Trajectory]) -> float:
    """Return the share of episodes that succeeded."""
    return sum(each.outcome is not None and each.outcome.success for each in tasks) / len(tasks)
