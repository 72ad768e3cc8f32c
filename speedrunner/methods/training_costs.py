"""Costs of the public skills of a run in training, for a method's sleep. Held-out episodes do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
            the newest batch; `None` on the chat and responses APIs.
        calls: calls by the actor.
        saved_per_call: LLM calls that one call saved, on average; `None` without a call.
        break_even: the first training episode after which it had saved more than it had cost, at `PRICES`;
            see `SkillCost`.
        invalidated_tokens: tokens of the shared prefix from this skill on. An edit moves a skill to the end,
            so these are no longer cached. On the chat and responses APIs: of the schemas from this one on.
    """

    skill: str
    schema_tokens: int
    cached_tokens: int | None
    calls: int
    saved_per_call: float | None
    break_even: str | None
    invalidated_tokens: int


def training_costs(
    run: RunData, count_tokens: Callable[[str], int], prefix_tokens: int, starts: Mapping[str, int]
) -> list[TrainingCost]:
    """Return the costs of the newest policy's public skills, in the order of the actor's tools.

    Args:
        count_tokens: counts the tokens of a text for the actor's model.
        prefix_tokens, starts: tokens of the prefix that all episodes share, and of its part before each
            skill's schema; 0 and empty if they are unknown.

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
    cached = [
        turn.usage.cached
        for played in run.played("train", run.batches()[-1])
        for turn in played.turns
        if turn.role == "actor"
    ]
    lengths = [round(by_name[skill.name].schema_tokens or 0) for skill in public]
    found = []
    for place, (skill, length) in enumerate(zip(public, lengths, strict=True)):
        cost, start = by_name[skill.name], starts.get(skill.name)
        found.append(
            TrainingCost(
                skill=skill.name,
                schema_tokens=length,
                cached_tokens=None if start is None else _count_cached(cached, start, length),
                calls=cost.calls,
                saved_per_call=cost.steps_saved / cost.calls if cost.calls else None,
                break_even=cost.break_even,
                invalidated_tokens=sum(lengths[place:]) if start is None else prefix_tokens - start,
            )
        )
    return found


def _count_cached(cached: Sequence[int], start: int, length: int) -> int | None:
    """Return how many tokens of a schema came from the cache, on average; `None` without requests.

    Args:
        cached: by request, the tokens at the start of its prompt that came from the cache.
        start: tokens of the prompt before the schema.
    """
    return round(mean(min(max(each - start, 0), length) for each in cached)) if cached else None
