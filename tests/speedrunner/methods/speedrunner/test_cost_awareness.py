"""The costs of skills in the inducer's prompt, in whole runs."""

from __future__ import annotations

import re

import pytest

from speedrunner.methods.speedrunner.speedrunner_method import COSTS_SHOWN, dearest
from speedrunner.methods.training_costs import TrainingCost
from tests.scripted_runs import LEARN, Runs, ScriptedRun, check_whole, script, walker


def prompts(run: ScriptedRun) -> list[str]:
    """Return the first prompt of each sleep's inducer."""
    return [each.last for each in run.server.requests if "write_skill" in each.tools and each.turn == 0]


@pytest.mark.process
async def test_a_sleep_shows_what_each_public_skill_costs_and_saves(corridor: Runs) -> None:
    run = corridor(script(walker, LEARN), "method.cost_aware=true")
    await run.play()
    check_whole(run)
    first, second = prompts(run)
    assert "Costs of public skills" not in first
    row = re.search(r"^to_flag \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \| (.*) \| (\d+)$", second, re.M)
    assert row is not None
    schema, cached, calls, saved, _, invalidated = row.groups()
    assert int(invalidated) > int(schema) >= int(cached)  # the prompt has a text after the tools
    assert int(calls) == 2  # one call in each training episode; held-out episodes called it too
    assert float(saved) == 0.0  # it walks to the flag with one action


def test_and_does_not_by_default(learnt: ScriptedRun) -> None:
    assert not any("Costs of public skills" in each for each in prompts(learnt))


def test_the_table_has_the_skills_with_the_longest_schemas_in_the_order_of_the_prompt() -> None:
    costs = [
        TrainingCost(
            skill=f"s{number}", schema_tokens=100 + number % 50, cached_tokens=None, calls=0,
            saved_per_call=None, break_even=None, invalidated_tokens=0,
        )
        for number in range(100)
    ]  # fmt: skip
    shown = dearest(costs)
    assert len(shown) == COSTS_SHOWN
    assert shown == [each for each in costs if each in shown]
    assert min(each.schema_tokens for each in shown) == 130
