"""The costs of skills that a method sees, compared with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from speedrunner.library.library import Library
from speedrunner.results.training_costs import TrainingCost, training_costs
from speedrunner.store.records import PrefixChange
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import TURN, SmallRun, learnt, skill


def costs_of(path: Path) -> list[TrainingCost]:
    return training_costs(load(path), len)


def length(path: Path, version: int, name: str) -> int:
    """Return the length of a skill's schema."""
    library = Library(()).of(load(path).policies.load(version))
    return len(msgspec.json.encode(library.tool(name)))


def test_only_training_episodes_count(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    (home,) = costs_of(tmp_path / "run")
    # Called twice in training, with 6 and 0 actions, and in four held-out episodes.
    assert (home.skill, home.calls, home.saved_per_call) == ("home", 2, 2.0)


def test_tools_are_in_the_order_of_the_prompt_with_what_an_edit_invalidates(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"wander": "return walk()", "go": "return walk()", "_step": "return walk()"})
    run.train(0, [None])
    go, wander = costs_of(run.path)
    assert (go.skill, wander.skill) == ("go", "wander")
    assert go.schema_tokens == length(run.path, 0, "go")
    assert wander.schema_tokens == length(run.path, 0, "wander")
    assert go.invalidated_tokens == go.schema_tokens + wander.schema_tokens
    assert wander.invalidated_tokens == wander.schema_tokens
    assert (go.calls, go.saved_per_call, go.cached_tokens) == (0, None, None)


def test_cached_tokens_are_those_of_the_newest_batch(tmp_path: Path) -> None:
    probe = SmallRun(tmp_path / "probe")
    probe.policy(0, {"home": "return walk()"})
    size = length(probe.path, 0, "home")
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.train(0, [None])
    # The cache provides the first 60 tokens of each prompt. The schema begins 10 tokens before that.
    run.sleep(1, PrefixChange(before=0, after=TURN.cached - 10 + size, common=0))
    run.policy(1, {"home": "return walk()"})
    run.train(1, [skill("home", 6), None])
    (home,) = costs_of(run.path)
    assert home.cached_tokens == 10


def test_a_skill_pays_at_the_paper_s_prices_whatever_the_run_s_are(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"home": "return walk()"})
    run.train(0, [None], [skill("home", 10)])
    (home,) = costs_of(run.path)
    assert home.break_even == "train/0001"


def test_a_library_without_public_skills_costs_nothing(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"_step": "return walk()"})
    assert costs_of(run.path) == []
