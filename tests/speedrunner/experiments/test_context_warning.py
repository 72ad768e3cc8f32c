"""Warnings of conversations that fill the context before their limit of calls."""

from __future__ import annotations

import pandas

from speedrunner.config.compose import compose
from speedrunner.config.names import condition_name
from speedrunner.experiments.context_warning import warn_of_contexts
from speedrunner.experiments.forecast import COLUMNS, budgets_of
from speedrunner.runs.setup import Setup, set_up
from tests.golden_tables import Golden, table

NOTHING = pandas.DataFrame(columns=COLUMNS)


def planned(*overrides: str, method: str = "react") -> Setup:
    return set_up(compose(["model=qwen3.5-27b", f"method={method}", *overrides]), plays_here=False)


def measured(setup: Setup, *growth: float, first: float = 3072.0, context: int = 131072) -> pandas.DataFrame:
    """Return measured episodes, one for each growth of the prompt in tokens a call."""
    own = {"condition_name": condition_name(setup.config), "budgets": budgets_of(setup.config)}
    rows = [{**own, "kind": "test", "growth": each, "first_prompt": first} for each in growth]
    return pandas.DataFrame(rows).assign(context=context).reindex(columns=COLUMNS)


def test_a_pilot_says_at_about_which_call_the_context_is_full() -> None:
    setup = planned("env=crafter")
    (found,) = warn_of_contexts([setup], measured(setup, 300.0, 500.0))
    # (131,072 - 3,072) / 400 = 320 calls fit; the context is the one that was served.
    assert (found.call, found.calls, found.context, found.episodes) == (321, 2000, 131072, 2)


def test_without_a_pilot_the_thinking_budget_alone_can_fill_it() -> None:
    (found,) = warn_of_contexts([planned("env=crafter")], NOTHING)
    assert (found.call, found.growth, found.episodes) == (262144 // 256 + 1, 256, 0)


def test_seeds_of_a_condition_have_one_warning() -> None:
    setups = [planned("env=crafter", f"run.seed={seed}") for seed in (0, 1)]
    assert len(warn_of_contexts(setups, NOTHING)) == 1


def test_a_warning_says_when_the_context_is_full_and_what_to_do(golden: Golden) -> None:
    react, opo = (planned("env=crafter", method=method) for method in ("react", "opo"))
    warnings = {
        "a pilot": warn_of_contexts([react], measured(react, 300.0, 500.0)),
        "no pilot": warn_of_contexts([react], NOTHING),
        "two conditions with equal values": warn_of_contexts([react, opo], NOTHING),
    }
    golden("context_warnings.txt", table({name: found.describe() for name, (found,) in warnings.items()}))


def test_enough_context_for_all_calls_has_none() -> None:
    setup = planned("env=babyai")
    assert warn_of_contexts([setup], NOTHING) == []
    assert warn_of_contexts([setup], measured(setup, 4000.0)) == []  # 30 calls
    crafter = planned("env=crafter")
    assert warn_of_contexts([crafter], measured(crafter, 60.0)) == []
    assert warn_of_contexts([planned("env=crafter", "model.actor.max_calls=1024")], NOTHING) == []


def test_another_budget_of_thinking_is_judged_by_its_config() -> None:
    there = measured(planned("env=crafter"), 400.0)
    (found,) = warn_of_contexts([planned("env=crafter", "model.actor.thinking_tokens=1024")], there)
    assert (found.call, found.episodes) == (262144 // 1024 + 1, 0)
