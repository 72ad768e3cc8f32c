"""A run's ledger with the cost of each request, added up by role and episode.

Every displayed sum of tokens and money comes from here. Each row is priced with the prices of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from serving.usage import Prices, Sums, Usage
from speedrunner.results.pricing import PriceBook
from speedrunner.store.records import Labels
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from speedrunner.store.ledger_columns import LedgerColumns

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
    """

    book: PriceBook
    lines: dict[Labels, Spend]
    prefixes: dict[int | None, int]

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


class Group(NamedTuple):
    """The rows of a ledger with equal labels, wasted or not, added up without prices.

    Attributes:
        sent: requests with tokens.
        attention: sum of `Usage.attention`.
    """

    labels: Labels
    wasted: bool
    usage: Usage
    sent: int
    attention: float
    spend: Spend


@dataclass(frozen=True)
class Ledger:
    """A run's ledger, added up, to be priced by one or more rules.

    Attributes:
        group: the number of each row's group.
        groups: by number, in the order of their first rows.
        prefixes: as of `RunCosts`.
    """

    columns: LedgerColumns
    group: npt.NDArray[np.int64]
    groups: dict[int, Group]
    prefixes: dict[int | None, int]

    @classmethod
    def of(cls, run: RunData) -> Ledger:
        """Add up a run's ledger. Raises `StorageError`, also if the ledger is unexpectedly empty, and for a
        damaged sleep: sleeps record which requests were wasted and which policies share a prefix."""
        columns = run.columns
        if run.episodes and not len(columns.kind):
            raise RunDirectoryError(f"{run.path} has episodes but no ledger: is requests.jsonl missing?")
        group = 2 * columns.kind + columns.wasted
        prefixes: dict[int | None, int] = {}
        for number, prefix in ((sleep.sleep, sleep.prefix) for sleep in run.sleeps):
            if prefix is not None and prefix.before == prefix.common == prefix.after:
                prefixes[number] = prefixes.get(number - 1, number - 1)
        return cls(columns, group, _add_up(columns, group), prefixes)

    def price(self, book: PriceBook) -> RunCosts:
        """Return the costs by some prices and cache rule."""
        moved = _count(self.group, book.rule.count_moved(self.columns))
        lines: dict[Labels, Spend] = {}
        for number, group in self.groups.items():
            line = group.spend
            if book.prices is not None:
                usd = Paid.of_group(group, book.prices, moved[number])
                wasted_usd = usd.total if group.wasted else 0.0
                line = replace(line, usd_by_class=usd, usd=usd.total, wasted_usd=wasted_usd)
            lines[group.labels] = lines[group.labels] + line if group.labels in lines else line
        return RunCosts(book, lines, self.prefixes)


def run_costs(run: RunData, book: PriceBook) -> RunCosts:
    """Price a run's ledger. Raises the errors of `Ledger.of`."""
    return Ledger.of(run).price(book)


def token_line(run: RunData, requests: Container[str]) -> Spend:
    """Add up some requests of a run, by their ids, without prices."""
    groups = _add_up(run.columns, 2 * ~run.columns.find(requests) + run.columns.wasted)
    return sum((group.spend for number, group in groups.items() if number < 2), Spend())


def _add_up(columns: LedgerColumns, group: npt.NDArray[np.int64]) -> dict[int, Group]:
    """Add up the rows of each group; an odd one has wasted rows."""
    import numpy as np

    cached, useful = columns.usage.cached, columns.is_reported & ~columns.wasted
    amounts = (
        *(np.ones_like(group), columns.usage.was_sent, *vars(columns.usage).values()),
        *(columns.is_bounded & ~columns.is_reported, columns.cacheable.clip(0)),
        *(np.minimum(cached, columns.cacheable.clip(0)), useful, useful & columns.thought_cut),
    )
    sums = [_count(group, amount) for amount in amounts]
    attention = np.bincount(group, columns.usage.attention).tolist()
    _, first = np.unique(group, return_index=True)
    groups: dict[int, Group] = {}
    for row in np.sort(first).tolist():
        number = int(group[row])
        count, sent, *tokens, unreported, cacheable, from_cache, answers, cut = (
            each[number] for each in sums
        )
        labels, _ = columns.kinds[columns.kind[row]]
        usage, wasted = Usage(*tokens), bool(number % 2)
        classes = Classes.of(usage)
        spend = Spend(
            requests=count,
            tokens=classes,
            wasted=classes if wasted else Classes(),
            unreported=unreported,
            cacheable=cacheable,
            from_cache=from_cache,
            answers=answers,
            thought_cut=cut,
        )
        groups[number] = Group(Labels.of(labels), wasted, usage, sent, attention[number], spend)
    return groups


def _count(group: npt.NDArray[np.int64], amounts: npt.NDArray[Any]) -> list[int]:
    """Return the sum of each group. Sums are below 2**53, and so exact."""
    import numpy as np

    sums: list[int] = np.bincount(group, amounts).astype(np.int64).tolist()
    return sums


def _sum(one: Any, other: Any) -> Any:
    """Return the sum, where `None` adds nothing."""
    return other if one is None else one if other is None else one + other
