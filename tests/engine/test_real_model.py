"""A small real language model, whose chat template shows no tools, plays episodes and a sleep."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.store.run_data import load
from tests.scripted_runs import speedrunner

pytestmark = pytest.mark.slow

SHORT = (
    *("run.rollouts=3", "run.sleep_every=3", "run.eval_every=3", "run.test_episodes=1", "run.max_actions=10"),
    *("model.actor.max_calls=3", "model.actor.thinking_tokens=4", "model.actor.string_tokens=16"),
    *("model.inducer.max_calls=2", "model.inducer.thinking_tokens=4", "model.inducer.string_tokens=16"),
)


def test_it_reads_its_tools_and_plays_episodes_and_a_sleep_to_the_token(tmp_path: Path) -> None:
    chosen = ["env=babyai", "model=smollm2-135m", "method=speedrunner", f"run.dir={tmp_path / 'run'}"]
    done = speedrunner("run", *chosen, *SHORT)
    assert done.returncode == 0, done.stderr
    assert "smollm2-135m: the chat template omits tools, which go into the system message" in done.stdout
    assert "they agree to the token" in done.stdout
    run = load(tmp_path / "run")
    played = [turn for row in run.episodes for turn in run.trajectory(row.episode).turns]
    assert played
    assert all(turn.call is not None for turn in played)  # it knows no tool call but those of the grammar
    assert any(turn.usage.reasoning for turn in played)
    assert min(turn.usage.prompt for turn in played) > 500  # six tools with their documentation
    assert [len(sleep.agents) for sleep in run.sleeps] == [1]
