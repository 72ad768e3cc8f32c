"""The costs of skills that a method sees, compared with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from serving.model_configs import load_model_config
from serving.usage import Usage
from speedrunner.library.library import Library
from speedrunner.methods.training_costs import PRICES, TrainingCost, training_costs
from speedrunner.store.records import Turn
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import row
from tests.speedrunner.results.small_runs import TURN, SmallRun, learnt, skill
from tests.speedrunner.run_samples import trajectory


def costs_of(path: Path, prefix_tokens: int = 0, **starts: int) -> list[TrainingCost]:
    return training_costs(load(path), len, prefix_tokens, starts)


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
    go, wander = costs_of(run.path, 100, go=40, wander=70)
    assert (go.skill, wander.skill) == ("go", "wander")
    assert go.schema_tokens == length(run.path, 0, "go")
    assert wander.schema_tokens == length(run.path, 0, "wander")
    assert (go.invalidated_tokens, wander.invalidated_tokens) == (60, 30)  # instructions may follow the tools
    assert (go.calls, go.saved_per_call) == (0, None)
    unknown = costs_of(run.path)
    assert [each.cached_tokens for each in unknown] == [None, None]
    lengths = [go.schema_tokens, wander.schema_tokens]
    assert [each.invalidated_tokens for each in unknown] == [sum(lengths), lengths[1]]


def test_cached_tokens_are_those_of_the_newest_batch(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.train(0, [None])
    run.sleep(1)
    run.policy(1, {"home": "return walk()"})
    run.train(1, [skill("home", 6), None])
    # The cache provides the first 60 tokens of each prompt.
    (home,) = costs_of(run.path, 200, home=TURN.cached - 10)
    assert home.cached_tokens == 10


def test_cached_tokens_are_those_of_the_actor_alone(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"home": "return walk()"})
    turns = [Turn([], "", TURN, 1.0), Turn([], "", Usage(100, 0, 20), 1.0, role="critic")]
    with RunDirectory.open_for_writing(run.path) as directory:
        directory.append_request(row(1.0, TURN, phase="train", policy="0", episode="train/0000"))
        directory.append_trajectory("train", 0, trajectory("train/0000", turns=turns))
    (home,) = costs_of(run.path, 200, home=0)
    assert home.cached_tokens == TURN.cached


def test_a_skill_pays_at_the_paper_s_prices_whatever_the_run_s_are(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"home": "return walk()"})
    run.train(0, [None], [skill("home", 10)])
    (home,) = costs_of(run.path)
    assert home.break_even == "train/0001"
    assert load_model_config("gpt-5.4-mini").prices == PRICES


def test_a_library_without_public_skills_costs_nothing(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"_step": "return walk()"})
    assert costs_of(run.path) == []
