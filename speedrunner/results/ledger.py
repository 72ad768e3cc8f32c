"""A run's ledger with the cost of each request, added up by role and episode.

Every displayed sum of tokens, money and engine time comes from here. Each row is priced with the prices of
its model. A process uses an engine from the readiness request that it sends first to its last answer. The
engine's start and stop are in no ledger and are not included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from serving.meter import READINESS, LedgerRow
from serving.usage import Prices, Sums, Usage
from speedrunner.results.pricing import PriceBook
from speedrunner.store.records import Labels
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

Key = TypeVar("Key", bound=Hashable)

WARM_UP = "prefix_warm_up"

NONE = "(none)"
"""Stands for the missing role of a request."""


class Classes(Sums, frozen=True):
    """An amount for each class of tokens; each token is in exactly one.

    Attributes:
        cached: prompt tokens from the prefix cache.
        computed: all other prompt tokens.
        reasoning: generated tokens up to the end of the reasoning.
        action: all other generated tokens.
    """

    cached: float = 0
    computed: float = 0
    reasoning: float = 0
    action: float = 0

    @classmethod
    def of(cls, usage: Usage) -> Classes:
        """Return the tokens of a usage, by class."""
        return cls(usage.cached, usage.uncached, usage.reasoning, usage.action)

    @property
    def total(self) -> float:
        """Return the sum over all classes."""
        return self.cached + self.computed + self.reasoning + self.action


class Paid(Classes, frozen=True):
    """USD for each class of tokens, and for requests besides their tokens."""

    requests: float = 0

    @classmethod
    def of_group(cls, group: Group, prices: Prices, moved: int) -> Paid:
        """Return the cost of a group, of whose cached tokens `moved` cost the price of uncached ones."""
        usage = group.usage
        output = prices.output + prices.attention * group.attention / max(usage.completion, 1)
        amounts = (
            prices.cached * (usage.cached - moved),
            prices.uncached * (usage.uncached + moved),
            output * usage.reasoning,
            output * usage.action,
            prices.requests * group.sent,
        )
        return cls(*(amount / 1e6 for amount in amounts))

    @property
    def total(self) -> float:
        """Return the sum."""
        return super().total + self.requests


class Spend(msgspec.Struct, frozen=True):
    """One part of a run. `None`: not measured, or not paid for in this way.

    Attributes:
        requests: tries, including those without a usage.
        tokens: by class, if the engine reported them.
        wasted: the part of `tokens` that was useless (retries, aborted requests, aborted attempts).
        usd_by_class: cost of the tokens and requests.
        usd: its sum.
        wasted_usd: the wasted part of `usd`.
        unreported: tries that the engine may have worked on without reporting a usage.
        cacheable: prompt tokens that the prefix cache could have provided, if known; see `LedgerRow`.
        from_cache: the part of them that it provided.
        answers: answered requests that were not wasted.
        thought_cut: answers whose reasoning ended at its budget (completions API only).
    """

    requests: int = 0
    tokens: Classes = Classes()
    wasted: Classes = Classes()
    usd_by_class: Paid | None = None
    usd: float | None = None
    wasted_usd: float | None = None
    unreported: int = 0
    cacheable: int = 0
    from_cache: int = 0
    answers: int = 0
    thought_cut: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(*map(_sum, astuple(self), astuple(other)))

    @property
    def useful(self) -> Classes:
        """Return the tokens that were not wasted."""
        return self.tokens - self.wasted

    @property
    def useful_usd(self) -> float:
        """Return the cost of the useful tokens; 0 if unknown."""
        return (self.usd or 0.0) - (self.wasted_usd or 0.0)

    @property
    def cache_share(self) -> float | None:
        """Return `from_cache` as a share of `cacheable`; `None` if that is 0 or unknown."""
        return self.from_cache / self.cacheable if self.cacheable else None

    @property
    def thought_cut_share(self) -> float | None:
        """Return `thought_cut` as a share of `answers`; `None` without answers."""
        return self.thought_cut / self.answers if self.answers else None


@dataclass(frozen=True)
class RunCosts:
    """One run's ledger, priced.

    Attributes:
        book: the prices.
        lines: by purpose of the requests.
        prefixes: by policy whose prompt prefix an earlier one has, the first policy with this prefix.
        unpriced: models without a price.
        engine_s: see `engine_seconds`.
    """

    book: PriceBook
    lines: dict[Labels, Spend]
    prefixes: dict[int | None, int]
    unpriced: list[str]
    engine_s: float | None

    @cached_property
    def roles(self) -> dict[str, Spend]:
        """Return the lines by role, the busiest first."""
        roles = self._group_lines(lambda labels: labels.role or NONE)
        return dict(sorted(roles.items(), key=lambda item: -item[1].tokens.total))

    @cached_property
    def episodes(self) -> dict[str, Spend]:
        """Return the lines by episode or sleep (`sleep_key`), with all attempts and roles; `useful` is the
        attempt that counts."""
        found = self._group_lines(lambda labels: labels.episode)
        return {key: line for key, line in found.items() if key is not None}

    @cached_property
    def warm_ups(self) -> dict[int | None, Spend]:
        """Return the prefix warm-ups by the first policy with that prefix."""
        found = self._group_lines(lambda each: (each.role, self.prefixes.get(each.policy, each.policy)))
        return {policy: line for (role, policy), line in found.items() if role == WARM_UP}

    @cached_property
    def total(self) -> Spend:
        """Return the sum of all lines."""
        return sum(self.roles.values(), Spend())

    def _group_lines(self, key: Callable[[Labels], Key]) -> dict[Key, Spend]:
        groups: dict[Key, Spend] = {}
        for labels, line in self.lines.items():
            groups[key(labels)] = groups.get(key(labels), Spend()) + line
        return groups


GroupKey = tuple[str, bool, int]
"""Model, whether the rows were wasted, and the identity of their labels."""


class Group(NamedTuple):
    """The rows of a ledger with one key, added up without prices.

    Attributes:
        sent: requests with tokens.
        attention: sum of `Usage.attention`.
    """

    labels: Labels
    usage: Usage
    sent: int
    attention: float
    spend: Spend


@dataclass(frozen=True)
class Ledger:
    """A run's ledger, added up, to be priced by one or more rules.

    Attributes:
        groups: rows with equal labels share them, so that there are few groups.
        prefixes, engine_s: as of `RunCosts`.
    """

    rows: Sequence[LedgerRow]
    groups: dict[GroupKey, Group]
    prefixes: dict[int | None, int]
    engine_s: float | None

    @classmethod
    def of(cls, run: RunData) -> Ledger:
        """Add up a run's ledger. Raises `StorageError`, also if the ledger is unexpectedly empty, and for a
        damaged sleep: sleeps record which requests were wasted and which policies share a prefix."""
        if run.episodes and not run.requests:
            raise RunDirectoryError(f"{run.path} has episodes but no ledger: is requests.jsonl missing?")
        rows: dict[GroupKey, list[LedgerRow]] = {}
        for row in run.requests:
            rows.setdefault(_group_key(row), []).append(row)
        groups = {key: _add_up(own) for key, own in rows.items()}
        prefixes: dict[int | None, int] = {}
        for number, prefix in ((sleep.sleep, sleep.prefix) for sleep in run.sleeps):
            if prefix is not None and prefix.before == prefix.common == prefix.after:
                prefixes[number] = prefixes.get(number - 1, number - 1)
        return cls(run.requests, groups, prefixes, engine_seconds([run.requests]))

    def price(self, book: PriceBook) -> RunCosts:
        """Return the costs by some prices and cache rule."""
        moved = Counter[GroupKey]()
        for row, tokens in zip(self.rows, book.rule.count_moved(self.rows), strict=True):
            moved[_group_key(row)] += tokens
        lines: dict[Labels, Spend] = {}
        unpriced: dict[str, None] = {}
        for key, group in self.groups.items():
            (model, wasted, _), line = key, group.spend
            if (prices := book.models.get(model)) is None:
                unpriced[model] = None
            else:
                usd = Paid.of_group(group, prices, moved[key])
                line = replace(line, usd_by_class=usd, usd=usd.total, wasted_usd=usd.total if wasted else 0.0)
            lines[group.labels] = lines.get(group.labels, Spend()) + line
        return RunCosts(book, lines, self.prefixes, list(unpriced), self.engine_s)


def run_costs(run: RunData, book: PriceBook) -> RunCosts:
    """Price a run's ledger. Raises the errors of `Ledger.of`."""
    return Ledger.of(run).price(book)


def token_line(rows: Iterable[LedgerRow]) -> Spend:
    """Add up the rows of any ledger, without prices."""
    return _add_up([*rows]).spend


def _group_key(row: LedgerRow) -> GroupKey:
    return row.model, row.wasted, id(row.labels)


def _add_up(rows: Sequence[LedgerRow]) -> Group:
    """Add up rows."""
    useful = [row for row in rows if not row.wasted]
    usage = _sum_usages(rows)
    wasted = Classes.of(usage - _sum_usages(useful))
    answers = [row for row in useful if row.usage is not None]
    spend = Spend(
        requests=len(rows),
        tokens=Classes.of(usage),
        wasted=wasted,
        unreported=sum(row.usage is None and row.at_most is not None for row in rows),
        cacheable=sum(row.cacheable or 0 for row in rows),
        from_cache=sum(min(row.usage.cached, row.cacheable or 0) for row in rows if row.usage),
        answers=len(answers),
        thought_cut=sum(row.thought_cut for row in answers),
    )
    labels = Labels.of(rows[0].labels) if rows else Labels()
    used = [row.usage for row in rows if row.usage]
    sent, attention = sum(usage.was_sent for usage in used), sum(usage.attention for usage in used)
    return Group(labels, usage, sent, attention, spend)


def _sum_usages(rows: Iterable[LedgerRow]) -> Usage:
    known = (astuple(row.usage) for row in rows if row.usage is not None)
    return Usage(*map(sum, zip(*known, strict=True)))


def _sum(one: Any, other: Any) -> Any:
    """Return the sum, where `None` adds nothing."""
    return other if one is None else one if other is None else one + other


def engine_seconds(runs: Iterable[Sequence[LedgerRow]]) -> float | None:
    """Return the seconds in which at least one of the runs, given by their ledgers, used an engine; the sum
    over engines, each of which a model identifies.

    `None` if no process found an engine ready, as with hosted models.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    model = attrgetter("model")
    for rows in runs:
        for name, own in groupby(sorted(rows, key=model), key=model):
            for process in _split_by_process(own):
                begins = min(row.time - row.seconds for row in process)
                spans.setdefault(name, []).append((begins, max(row.time for row in process)))
    if not spans:
        return None
    total = 0.0
    for used in spans.values():
        until = -inf
        for begin, end in sorted(used):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
    return total


def _split_by_process(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """Return the rows of one run and one engine, one list for each process that found the engine ready."""
    found: list[list[LedgerRow]] = []
    for row in rows:
        if row.retry == 0 and row.labels.get("role") == READINESS:
            found.append([])
        if found:
            found[-1].append(row)
    return found
