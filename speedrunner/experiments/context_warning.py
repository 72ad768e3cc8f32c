"""Warn if an actor's conversation fills the model's context before the episode's limit of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from speedrunner.config.names import ConditionName, condition_name
from speedrunner.experiments.forecast import budgets_of
from speedrunner.runs.setup import Setup

if TYPE_CHECKING:
    import pandas

ADVICE = "Serve more context, or lower model.actor.thinking_tokens"


class ContextWarning(msgspec.Struct, frozen=True):
    """Conditions with episodes that can fill the context.

    Attributes:
        conditions: those with the same values.
        call: the first call, about, for which the context has no room.
        calls: an episode's limit of calls.
        context: tokens of prompt and answer that the model takes.
        growth: tokens by which each call makes the prompt longer.
        first_prompt: tokens of the first prompt; 0 if nothing was measured.
        episodes: measured episodes behind it; 0: only the thinking budget is known.
    """

    conditions: tuple[ConditionName, ...]
    call: int
    calls: int
    context: int
    growth: float
    first_prompt: float = 0.0
    episodes: int = 0

    def describe(self) -> str:
        """Return the warning as one line."""
        names = ", ".join(map(str, self.conditions))
        when = "at"
        reason = f"prompts start at {self.first_prompt:,.0f} tokens and grow by {self.growth:,.0f} a call"
        if not self.episodes:
            when = "by"
            reason = f"only thinking, at its whole budget of {self.growth:,.0f} tokens a call"
        source = f"{self.episodes} measured episodes" if self.episodes else "not measured"
        full = f"is full {when} about call {self.call:,} of {self.calls:,}"
        return (
            f"warning: {names}: the context of {self.context:,} tokens {full} ({source}: {reason}). {ADVICE}."
        )


def warn_of_contexts(setups: Sequence[Setup], known: pandas.DataFrame) -> list[ContextWarning]:
    """Return warnings of the planned conditions with episodes that are likely to fill the context; conditions
    with equal values share one.

    Args:
        known: measurements with the columns `speedrunner.experiments.forecast.COLUMNS`. A condition without
            an episode of at least two calls there is judged by its model config: the thinking budget is kept
            in each turn, and everything else in the prompt is left out.
    """
    by_condition = {condition_name(setup.config): setup for setup in setups}
    merged: dict[ContextWarning, list[ConditionName]] = {}
    for each in _warnings(by_condition, known):
        merged.setdefault(msgspec.structs.replace(each, conditions=()), []).extend(each.conditions)
    return [msgspec.structs.replace(each, conditions=tuple(names)) for each, names in merged.items()]


def _warnings(setups: dict[ConditionName, Setup], known: pandas.DataFrame) -> Iterator[ContextWarning]:
    for name, setup in setups.items():
        actor = setup.model_config.role("actor")
        own = known[(known["condition_name"] == name) & (known["budgets"] == budgets_of(setup.config))]
        own = own[own["growth"].notna()]
        context, first, growth = (
            setup.model_config.context,
            0.0,
            float(actor.thinking_tokens),
        )
        if len(own):
            context = min(context, int(own["context"].min()))
            first, growth = float(own["first_prompt"].mean()), float(own["growth"].mean())
        calls = actor.calls(setup.env.limits.llm_calls)
        if growth > 0 and (call := int(max(context - first, 0) / growth) + 1) <= calls:
            yield ContextWarning((name,), call, calls, context, growth, first, len(own))
