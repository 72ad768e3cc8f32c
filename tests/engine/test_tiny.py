"""The bundled model that was trained: it learns, in the demo on a real vLLM."""

from __future__ import annotations

import re

import pytest

from speedrunner.results.ledger import run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import price_book
from speedrunner.store.run_data import RunData, load
from tests.bundled_demo import Demo
from tests.speedrunner.results.test_pricing import RULES, require_costs

pytestmark = pytest.mark.slow

PLAIN = 0.21
"""Least share that it solves without skills, in 30 episodes: enough to learn from. Its model card: 97 % of
230."""


@pytest.fixture(scope="module")
def demo(bundled_demo: Demo) -> RunData:
    """The demo's run."""
    done = bundled_demo.done
    assert f"tiny: {caveat()}" in " ".join(done.stdout.split())
    assert "they agree to the token" in " ".join(done.stdout.split())
    assert re.search(r"vLLM is ready after \d+ s", done.stdout)
    assert " WARNING " in (bundled_demo.run / "server.log").read_text()  # vLLM's own stay there
    assert "WARNING" not in done.stdout + done.stderr
    return load(bundled_demo.run)


@pytest.mark.parametrize("rule", RULES)
def test_its_costs_can_be_recomputed_from_its_files(bundled_demo: Demo, rule: str) -> None:
    require_costs(bundled_demo.run, rule, batch=10)


def caveat() -> str:
    from serving.model_configs import load_model_config

    return load_model_config("tiny").caveat


def test_without_skills_it_solves_enough_to_learn(demo: RunData) -> None:
    plain = [row.score for row in demo.episodes if row.policy == 0 and row.score is not None]
    assert sum(plain) / len(plain) >= PLAIN


def test_what_it_learns_saves_tokens_and_loses_nothing(demo: RunData) -> None:
    costs = run_costs(demo, price_book(demo))
    checkpoints = frame_checkpoints(demo, costs)
    first, last = checkpoints.iloc[0], checkpoints.iloc[-1]
    assert last["output"] < first["output"] / 2
    assert last["llm_calls"] < first["llm_calls"] / 2
    assert last["score"] >= first["score"]
    assert last["public"]


def test_its_inducer_looks_before_it_writes(demo: RunData) -> None:
    for sleep in demo.sleeps:
        (inducer,) = sleep.agents
        calls = [turn.call.name for turn in inducer.turns if turn.call is not None]
        assert calls[0] == "execute_code"
    assert any(edit.error is None for sleep in demo.sleeps for edit in sleep.edits)
