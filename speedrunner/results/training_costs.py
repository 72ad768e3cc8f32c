"""Costs of the public skills of a run in training, for a method's sleep. Held-out episodes do not count."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import msgspec

from serving.usage import Prices
from speedrunner.library.library import Library
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import PriceBook
from speedrunner.results.skill_costs import SkillCost, skill_costs
from speedrunner.results.skill_table import skill_history
from speedrunner.store.run_data import RunData

PRICES = Prices(uncached=0.75, cached=0.075, output=4.50)
"""USD per million tokens: the paper's prices of gpt-5.4-mini (Appendix A.3). They are fixed, because a run's
own prices may change while it is played, and these costs are part of a prompt."""


class TrainingCost(msgspec.Struct, frozen=True, kw_only=True):
    """One public skill of the newest policy, in the training episodes so far.

    Attributes:
        schema_tokens: tokens of its name, documentation and parameters in every request of the actor.
        cached_tokens: how many of these came from the prefix cache, on average over the actor's requests in
            the newest batch; `None` if no sleep has recorded the length of the prefix.
        calls: calls by the actor.
        saved_per_call: LLM calls that one call saved, on average; `None` without a call.
        break_even: the first training episode after which it had saved more than it had cost, at `PRICES`;
            see `SkillCost`.
        invalidated_tokens: tokens of the tools from this one on. An edit moves a skill to the end, so these
            are no longer cached.
    """

    skill: str
    schema_tokens: int
    cached_tokens: int | None
    calls: int
    saved_per_call: float | None
    break_even: str | None
    invalidated_tokens: int


def training_costs(run: RunData, count_tokens: Callable[[str], int]) -> list[TrainingCost]:
    """Return the costs of the newest policy's public skills, in the order of the actor's tools.

    Args:
        count_tokens: counts the tokens of a text for the actor's model.

    Raises:
        StorageError: the run cannot be read.
    """
    version = run.policies.versions()[-1]
    public = Library(()).of(run.policies.load(version)).public
    if not public:
        return []
    book = PriceBook("paper", dict.fromkeys((row.model for row in run.requests), PRICES))
    (costs,) = run_costs([run], [book])
    history = skill_history(run, held_out=False)
    by_name: dict[str, SkillCost] = {
        each.skill: each for each in skill_costs(run, costs, history, count_tokens)
    }
    lengths = [round(by_name[skill.name].schema_tokens or 0) for skill in public]
    ends = [sum(lengths[place:]) for place in range(len(lengths))]
    shares = [_cached(run, version, end, length) for end, length in zip(ends, lengths, strict=True)]
    return [
        TrainingCost(
            skill=skill.name,
            schema_tokens=length,
            cached_tokens=cached,
            calls=(cost := by_name[skill.name]).calls,
            saved_per_call=cost.steps_saved / cost.calls if cost.calls else None,
            break_even=cost.break_even,
            invalidated_tokens=end,
        )
        for skill, length, end, cached in zip(public, lengths, ends, shares, strict=True)
    ]


def _cached(run: RunData, version: int, end: int, length: int) -> int | None:
    """Return the mean number of tokens of a schema that came from the cache, in the newest batch.

    The tools end the prefix that all episodes share, and the cache provides the start of a prompt.

    Args:
        end: tokens from the start of the schema to the end of the prefix.
        length: tokens of the schema.
    """
    prefix = next((each.prefix for each in run.sleeps if each.sleep == version), None)
    if prefix is None:
        return None
    start = prefix.after - end
    found = [
        min(max(turn.usage.cached - start, 0), length)
        for played in run.played("train", run.batches()[-1])
        for turn in played.turns
        if turn.role == "actor"
    ]
    return round(mean(found)) if found else None
