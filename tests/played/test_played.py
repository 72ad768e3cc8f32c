"""Plays of a strong model, played again through the real loop: what a change does to a real play.

If prompts or replies changed, `--update` rewrites the texts that the answers were written for; the difference
of the golden file shows which they are. Where an answer does not fit any more, remove it and those after it
from the recording, and play on by hand: see `play_by_hand`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData
from tests.golden_tables import Golden
from tests.played.play_by_hand import RUNS, PlayedAnswer, play, read_answers

pytestmark = pytest.mark.process


def no_answer(role: str, read: str) -> PlayedAnswer:
    raise AssertionError(f"the recording has no further answer of the {role}, which read:\n{read}")


def describe_run(data: RunData) -> str:
    """Each episode with score, calls and tokens, each sleep with its edits, and each skill's first call."""
    lines, first = [], dict[str, str]()
    for played in sorted(
        [*data.trajectories(), *data.evaluations()], key=lambda each: (each.policy, each.episode)
    ):
        lines.append(describe_episode(played))
        for turn in played.turns:
            if (call := turn.executed) is not None and call.kind == "skill":
                first.setdefault(call.name, f"{call.error or call.result} ({played.episode})")
    for sleep in data.sleeps:
        edits = [
            f"{edit.action} {edit.name}{f': {edit.error}' if edit.error else ''}" for edit in sleep.edits
        ]
        calls = sum(len(agent.turns) for agent in sleep.agents)
        lines.append(f"sleep {sleep.sleep}: {calls} LLM calls; {'; '.join(edits)}")
    lines += [f"first call of {name}: {ended}" for name, ended in first.items()]
    return "\n".join([*lines, ""])


def describe_episode(played: Trajectory) -> str:
    """An episode in one line."""
    assert played.outcome is not None
    actions = sum(turn.executed.actions for turn in played.turns if turn.executed is not None)
    tokens = f"{played.usage.prompt} prompt ({played.usage.cached} cached), {played.usage.completion} output"
    return (
        f"{played.episode}: {played.termination}, score {played.outcome.score:g},"
        f" {len(played.turns)} LLM calls, {actions} actions, tokens: {tokens}"
    )


@pytest.mark.parametrize("name", RUNS)
async def test_a_recorded_play_is_played_again(name: str, tmp_path: Path, golden: Golden) -> None:
    data, read = await play(name, no_answer, tmp_path)
    answers = read_answers(name)
    assert {role: len(texts) for role, texts in read.items()} == {
        role: sum(answer.role == role for answer in answers) for role in read
    }
    texts = "".join(
        f"=== {role} {number}\n{text}\n" for role in read for number, text in enumerate(read[role])
    )
    golden(f"played/{name}_read.txt", texts)
    golden(f"played/{name}.txt", describe_run(data))
