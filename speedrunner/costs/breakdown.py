"""A run's ledger, added up: per role, per checkpoint, per class of tokens."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from serving.meter import LedgerRow
from serving.usage import Prices, Usage
from speedrunner.costs.engine_time import EngineTime, engine_time
from speedrunner.costs.pricing import PriceBook
from speedrunner.store.data import RunData
from speedrunner.store.labels import Labels

Key = TypeVar("Key", bound=Hashable)
Summand = TypeVar("Summand", float, "Classes")

NONE = "(none)"
"""In the place of a role or a phase that a request does not have."""

IDLE = "(idle)"
"""In the place of a role or a phase: engine time in which no request waited."""


class Classes(msgspec.Struct, frozen=True):
    """Something about each class of tokens; each token is in exactly one.

    Attributes:
        cached: prompt tokens from the prefix cache.
        computed: all other prompt tokens.
        reasoning: generated tokens up to the end of the thinking region.
        action: all other generated tokens.
    """

    cached: float = 0
    computed: float = 0
    reasoning: float = 0
    action: float = 0

    @classmethod
    def of(cls, usage: Usage) -> Classes:
        """The tokens of a usage, by class."""
        return cls(usage.cached, usage.uncached, usage.reasoning, usage.action)

    def times(self, prices: Prices) -> Classes:
        """What they cost, in USD (paper, Appendix A.3: output is reasoning and action)."""
        return Classes(
            self.cached * prices.cached / 1e6,
            self.computed * prices.uncached / 1e6,
            self.reasoning * prices.output / 1e6,
            self.action * prices.output / 1e6,
        )

    def __add__(self, other: Classes) -> Classes:
        return Classes(
            self.cached + other.cached,
            self.computed + other.computed,
            self.reasoning + other.reasoning,
            self.action + other.action,
        )

    @property
    def total(self) -> float:
        """Over all classes."""
        return self.cached + self.computed + self.reasoning + self.action


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a run. `None` stands for what was not measured, or is not paid for in this way.

    Attributes:
        requests: tries, those without a usage included.
        tokens: by class, as far as the engine told.
        wasted: of these, what served nothing (retries, aborted and overflowed requests, attempts given up).
        usd_by_class: what the tokens cost, where they are paid by the token.
        usd: what all of it costs: tokens, or engine time.
        wasted_usd: the wasted part of `usd`.
        engine_s: share of the engine's seconds; see `speedrunner.costs.engine_time`.
        unreported: tries of which the engine told no usage although it may have worked on them.
        at_most: the most tokens that it can have counted for them (prompt and generated).
        at_most_usd: the most that they can have cost beyond `usd`, where tokens are paid.
    """

    requests: int = 0
    tokens: Classes = Classes()
    wasted: Classes = Classes()
    usd_by_class: Classes | None = None
    usd: float | None = None
    wasted_usd: float | None = None
    engine_s: float | None = None
    unreported: int = 0
    at_most: Classes = Classes()
    at_most_usd: float = 0.0

    def __add__(self, other: Line) -> Line:
        return Line(
            requests=self.requests + other.requests,
            tokens=self.tokens + other.tokens,
            wasted=self.wasted + other.wasted,
            usd_by_class=_sum(self.usd_by_class, other.usd_by_class),
            usd=_sum(self.usd, other.usd),
            wasted_usd=_sum(self.wasted_usd, other.wasted_usd),
            engine_s=_sum(self.engine_s, other.engine_s),
            unreported=self.unreported + other.unreported,
            at_most=self.at_most + other.at_most,
            at_most_usd=self.at_most_usd + other.at_most_usd,
        )


class CacheShare(msgspec.Struct, frozen=True, kw_only=True):
    """What the prefix cache gave of what it could give.

    Attributes:
        cacheable: the most prompt tokens that it could give, over the requests for which that is known.
        cached: what it gave to these; what a request got beyond its most makes up for nothing.
        requests: how many they are.
    """

    cacheable: int
    cached: int
    requests: int

    @property
    def share(self) -> float | None:
        """`None` where nothing could be cached, or it is not known."""
        return self.cached / self.cacheable if self.cacheable else None


@dataclass(frozen=True)
class Breakdown:
    """One run's ledger.

    Attributes:
        roles: by role, the busiest first; engine time in which nobody waited stands under `IDLE`.
        checkpoints: by phase and policy version; what belongs to none (readiness, probes) under `(none)`.
        total: all of it.
        cache: of the whole run.
        unpriced: models for which there is no price.
    """

    roles: dict[str, Line]
    checkpoints: dict[tuple[str, int | None], Line]
    total: Line
    cache: CacheShare
    unpriced: list[str]


def breakdowns(runs: Sequence[RunData], books: Sequence[PriceBook]) -> list[Breakdown]:
    """Add up the ledgers of runs that shared their engines, or of one run, at the prices of `books`."""
    times = _engine_times([run.requests for run in runs])
    return [_breakdown(run.requests, book, time) for run, book, time in zip(runs, books, times, strict=True)]


def cache_share(rows: Sequence[LedgerRow]) -> CacheShare:
    """What the cache gave of what it could give."""
    known = [
        (row.cacheable, row.usage) for row in rows if row.cacheable is not None and row.usage is not None
    ]
    return CacheShare(
        cacheable=sum(most for most, _ in known),
        cached=sum(min(most, usage.cached) for most, usage in known),
        requests=len(known),
    )


def _engine_times(ledgers: list[list[LedgerRow]]) -> list[dict[str, EngineTime]]:
    """For each run, its share of each engine; an engine is known by its model."""
    shares: list[dict[str, EngineTime]] = [{} for _ in ledgers]
    for model in dict.fromkeys(row.model for rows in ledgers for row in rows):
        users = [number for number, rows in enumerate(ledgers) if any(row.model == model for row in rows)]
        found = engine_time([[row for row in ledgers[number] if row.model == model] for number in users])
        for number, share in zip(users, found or [], strict=False):
            shares[number][model] = share
    return shares


def _breakdown(rows: list[LedgerRow], book: PriceBook, times: dict[str, EngineTime]) -> Breakdown:
    seconds = {model: iter(time.requests) for model, time in times.items()}
    lines = [
        (row, _line(row, book, next(seconds[row.model]) if row.model in seconds else None)) for row in rows
    ]
    roles = _grouped(lines, lambda row: Labels.of(row.labels).role or NONE)
    roles = dict(sorted(roles.items(), key=lambda item: -item[1].tokens.total))
    checkpoints = dict(sorted(_grouped(lines, _checkpoint).items(), key=lambda item: _position(item[0])))
    idle = [_idle(model, book, time) for model, time in times.items()]
    if idle:
        roles[IDLE] = checkpoints[IDLE, None] = _total(idle)
    unpriced = dict.fromkeys(row.model for row, line in lines if line.usd is None)
    return Breakdown(roles, checkpoints, _total(roles.values()), cache_share(rows), list(unpriced))


def _line(row: LedgerRow, book: PriceBook, seconds: float | None) -> Line:
    prices = book.by_token(row.model)
    tokens = Classes.of(row.usage or Usage())
    by_class = None if prices is None else tokens.times(prices)
    usd = by_class.total if by_class else None if seconds is None else book.by_time(row.model, seconds)
    most = Classes() if row.usage is not None else Classes.of(row.at_most or Usage())
    return Line(
        requests=1,
        tokens=tokens,
        wasted=tokens if row.wasted else Classes(),
        usd_by_class=by_class,
        usd=usd,
        wasted_usd=usd if row.wasted or usd is None else 0.0,
        engine_s=seconds,
        unreported=int(row.usage is None and row.at_most is not None),
        at_most=most,
        at_most_usd=0.0 if prices is None else most.times(prices).total,
    )


def _idle(model: str, book: PriceBook, time: EngineTime) -> Line:
    usd = book.by_time(model, time.idle)
    return Line(engine_s=time.idle, usd=usd, wasted_usd=None if usd is None else 0.0)


def _checkpoint(row: LedgerRow) -> tuple[str, int | None]:
    labels = Labels.of(row.labels)
    return labels.phase or NONE, labels.policy


def _position(checkpoint: tuple[str, int | None]) -> tuple[int, str]:
    """By policy; for one policy evaluation and wake, then the sleep after them."""
    phase, policy = checkpoint
    return -1 if policy is None else policy, {"test": "0", "train": "1", "sleep": "2"}.get(phase, phase)


def _grouped(lines: list[tuple[LedgerRow, Line]], key: Callable[[LedgerRow], Key]) -> dict[Key, Line]:
    groups: dict[Key, list[Line]] = {}
    for row, line in lines:
        groups.setdefault(key(row), []).append(line)
    return {name: _total(group) for name, group in groups.items()}


def _total(lines: Iterable[Line]) -> Line:
    return sum(lines, Line())


def _sum(one: Summand | None, other: Summand | None) -> Summand | None:
    """What is not there adds nothing."""
    return other if one is None else one if other is None else one + other
