"""Costs of skills, and when each had paid for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from speedrunner.library.library import Library
from speedrunner.results.ledger import Line, RunCosts
from speedrunner.results.skill_table import START, SkillHistory
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

STEPS = 20_000_000
"""Training episodes times versions of skills: some ten seconds of computation."""


class SkillCost(msgspec.Struct, frozen=True, kw_only=True):
    """One skill over a whole run. Values that are unknown, or that need a public skill, may be `None`.

    Attributes:
        created, changed: the sleeps that wrote it and changed it last; 0: the run started with it.
        removed: the sleep that deleted or renamed it.
        public: its last visibility.
        induction_tokens: share of the sleeps that wrote or changed it. Each sleep's tokens (of all classes
            and roles, without wasted ones) are split evenly among the skills that it wrote or changed.
        induction_usd: cost of these tokens.
        schema_tokens: tokens of its name, documentation and parameters in the prompt of every turn.
        calls: calls by the actor, in all finished episodes; `inner_calls` by other skills and programs.
        errors: failed calls of both kinds, as for `SkillVersion`.
        steps_saved: primitives that advanced the world in the actor's calls, minus one for each call.
        break_even: the first training episode after which it had saved more than it had cost. Each saved step
            counts as the run's mean LLM call in training. The cost is its induction plus, in every turn of
            the actor, its schema from the prefix cache. Unknown if finding it would take more than `STEPS`,
            in a run with many episodes and versions of skills.
    """

    skill: str
    created: int
    changed: int
    removed: int | None
    public: bool
    induction_tokens: float
    induction_usd: float | None
    schema_tokens: float | None
    calls: int
    inner_calls: int
    errors: int
    steps_saved: int
    break_even: str | None


class _Schemas:
    """The lengths of tools in a run's prompts, in tokens.

    No tokenizer is needed: sleeps recorded the length of the prefix under each policy, in which only the
    tools change (apart from notes). The policies with the least and the most tool text give the tokens per
    character.

    Args:
        count_tokens: counts the tokens of a text instead, if a tokenizer is available.
    """

    def __init__(
        self, run: RunData, libraries: dict[int, Library], count_tokens: Callable[[str], int] | None
    ) -> None:
        self._libraries = libraries
        self._size = count_tokens or len
        self._lengths: dict[tuple[str, str], int] = {}
        self._per_char: float | None = 1.0
        if count_tokens is not None:
            return
        prefixes = {each.sleep: each.prefix.after for each in run.sleeps if each.prefix is not None}
        prefixes |= {each.sleep - 1: each.prefix.before for each in run.sleeps if each.prefix is not None}
        known = sorted(
            (sum(self._length(version, each.name) for each in libraries[version].public), tokens)
            for version, tokens in prefixes.items()
            if version in libraries
        )
        chars = known[-1][0] - known[0][0] if known else 0
        self._per_char = (known[-1][1] - known[0][1]) / chars if chars else None

    def tokens(self, version: int, name: str) -> float | None:
        """Return the tokens of a public skill of a policy."""
        return None if self._per_char is None else self._per_char * self._length(version, name)

    def _length(self, version: int, name: str) -> int:
        library = self._libraries[version]
        key = name, library.named[name].source
        if key not in self._lengths:
            self._lengths[key] = self._size(msgspec.json.encode(library.tool(name)).decode())
        return self._lengths[key]


def skill_costs(
    run: RunData,
    costs: RunCosts,
    history: SkillHistory,
    count_tokens: Callable[[str], int] | None = None,
) -> list[SkillCost]:
    """Return the costs of all skills that a run ever had, in the order in which they were created.

    Args:
        count_tokens: counts the tokens of schemas; `None`: they are estimated from the records.

    Raises:
        StorageError: the run cannot be read.
        InvalidTool: a public skill could not be called by an actor.
    """
    changed = Counter(each.sleep for each in history.versions if each.change != START)
    shares = {
        sleep: (line.useful.total / count, line.useful_usd / count)
        for sleep, count in changed.items()
        for line in [costs.episodes.get(sleep_key(sleep), Line())]
    }
    schemas = _Schemas(run, history.libraries, count_tokens)
    worth = _Worth(run, costs)
    used = {name for use in history.uses for name in use.saved}
    if len(history.uses) * len(history.versions) > STEPS:
        used = set()
    found = []
    for name, own in history.by_name.items():
        sleeps = [each.sleep for each in own if each.change != START]
        last = history.total(name)
        shown = max(
            (number for number, each in history.libraries.items() if _public(each, name)), default=None
        )
        found.append(
            SkillCost(
                skill=name,
                created=own[0].sleep,
                changed=last.sleep,
                removed=last.until if last.removed else None,
                public=last.public,
                induction_tokens=sum(shares[sleep][0] for sleep in sleeps),
                induction_usd=None if costs.unpriced else sum(shares[sleep][1] for sleep in sleeps),
                schema_tokens=None if shown is None else schemas.tokens(shown, name),
                calls=last.calls,
                inner_calls=last.inner_calls,
                errors=last.errors,
                steps_saved=last.steps_saved,
                break_even=_break_even(
                    name, {sleep: shares[sleep][1] for sleep in sleeps}, worth, history, schemas
                )
                if worth.known and name in used
                else None,
            )
        )
    return found


class _Worth:
    """The average cost of an LLM call in a run's training, and the price of a token from its prefix cache,
    both in USD."""

    def __init__(self, run: RunData, costs: RunCosts) -> None:
        rows = [row for row in run.episodes if row.phase == "train"]
        usd = sum(costs.episodes.get(row.episode, Line()).useful_usd for row in rows)
        self.known = not costs.unpriced
        self.call_usd = usd / max(sum(row.llm_calls for row in rows), 1)
        prices = costs.book.models.get(run.processes[-1].actor.name) if run.processes else None
        self.cached_token_usd = prices.cached / 1e6 if prices else 0.0


def _break_even(
    name: str, induction: dict[int, float], worth: _Worth, history: SkillHistory, schemas: _Schemas
) -> str | None:
    carried, saved = 0.0, 0
    learnt = {
        policy: sum(usd for sleep, usd in induction.items() if sleep <= policy)
        for policy in {use.policy for use in history.uses}
    }
    for use in history.uses:
        if _public(history.libraries.get(use.policy), name):
            carried += use.turns * (schemas.tokens(use.policy, name) or 0.0)
        saved += use.saved.get(name, 0)
        if saved * worth.call_usd > learnt[use.policy] + worth.cached_token_usd * carried:
            return use.episode
    return None


def _public(library: Library | None, name: str) -> bool:
    return library is not None and name in library.by_name and library.by_name[name].public
