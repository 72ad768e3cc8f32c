"""A run's ledger with what each request cost, added up by role, checkpoint and episode.

Every sum of tokens and money that anybody is shown comes from here. Each row is priced by its own model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from serving.meter import LedgerRow
from serving.usage import Prices, Sums, Usage
from speedrunner.results.engine_time import EngineTime, engine_time
from speedrunner.results.pricing import PriceBook
from speedrunner.store.data import RunData
from speedrunner.store.labels import Labels
from speedrunner.store.stored_run import RunDirectoryError

Key = TypeVar("Key", bound=Hashable)

NONE = "(none)"
"""In the place of a role or a phase that a request does not have."""

IDLE = "(idle)"
"""In the place of a role or a phase: engine time in which no request waited."""


class Classes(Sums, frozen=True):
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
        lists = (prices.cached, prices.uncached, prices.output, prices.output)
        return Classes(*(tokens * price / 1e6 for tokens, price in zip(astuple(self), lists, strict=True)))

    @property
    def total(self) -> float:
        """Over all classes."""
        return self.cached + self.computed + self.reasoning + self.action


class Line(msgspec.Struct, frozen=True):
    """One part of a run. `None` stands for what was not measured, or is not paid for in this way.

    Attributes:
        requests: tries, those without a usage included.
        tokens: by class, as far as the engine told.
        wasted: of these, what served nothing (retries, aborted requests, attempts given up).
        usd_by_class: what the tokens cost, where they are paid by the token.
        usd: what all of it costs: tokens, or engine time.
        wasted_usd: the wasted part of `usd`.
        engine_s: share of the engine's seconds; see `speedrunner.results.engine_time`.
        unreported: tries of which the engine told no usage although it may have worked on them.
        at_most: the most tokens that it can have counted for them (prompt and generated).
        at_most_usd: the most that they can have cost beyond `usd`, where tokens are paid.
        cacheable: prompt tokens that an ideal prefix cache could have given, where that is known.
        from_cache: what the engine's own gave to the same requests.
        cacheable_in: their number.
        thought_cut: answers whose thinking was closed at its budget.
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
    cacheable: int = 0
    from_cache: int = 0
    cacheable_in: int = 0
    thought_cut: int = 0

    def __add__(self, other: Line) -> Line:
        return Line(*map(_sum, astuple(self), astuple(other)))

    @property
    def useful(self) -> Classes:
        """Tokens that were not wasted."""
        return self.tokens - self.wasted

    @property
    def useful_usd(self) -> float:
        """What they cost; nothing where that is not known."""
        return (self.usd or 0.0) - (self.wasted_usd or 0.0)

    @property
    def cache_share(self) -> float | None:
        """`from_cache` as a share of `cacheable`; `None` where that is nothing, or not known."""
        return self.from_cache / self.cacheable if self.cacheable else None


@dataclass(frozen=True)
class RunCosts:
    """One run's ledger, priced.

    Attributes:
        book: the prices.
        lines: by what the requests were sent for.
        idle: engine time in which nobody waited; `None` where no engine of ours was used.
        unpriced: models for which there is no price.
    """

    book: PriceBook
    lines: dict[Labels, Line]
    idle: Line | None
    unpriced: list[str]

    @cached_property
    def roles(self) -> dict[str, Line]:
        """By role, the busiest first; engine time in which nobody waited stands last, under `IDLE`."""
        roles = self._grouped(lambda labels: labels.role or NONE)
        ordered = dict(sorted(roles.items(), key=lambda item: -item[1].tokens.total))
        return ordered if self.idle is None else ordered | {IDLE: self.idle}

    @cached_property
    def checkpoints(self) -> dict[tuple[str, int | None], Line]:
        """By phase and policy, in the run's order; what belongs to none (readiness, probes) under `NONE`."""
        found = self._grouped(lambda labels: (labels.phase or NONE, labels.policy))
        ordered = dict(sorted(found.items(), key=lambda item: _position(*item[0])))
        return ordered if self.idle is None else ordered | {(IDLE, None): self.idle}

    @cached_property
    def episodes(self) -> dict[str, Line]:
        """By episode or sleep (`sleep_key`), all its attempts and roles; `useful` is the one that counts."""
        found = self._grouped(lambda labels: labels.episode)
        return {key: line for key, line in found.items() if key is not None}

    @cached_property
    def total(self) -> Line:
        """All of it."""
        return sum(self.roles.values(), Line())

    def _grouped(self, key: Callable[[Labels], Key]) -> dict[Key, Line]:
        groups: dict[Key, Line] = {}
        for labels, line in self.lines.items():
            groups[key(labels)] = groups.get(key(labels), Line()) + line
        return groups


def run_costs(runs: Sequence[RunData], books: Sequence[PriceBook]) -> list[RunCosts]:
    """Price the ledgers of runs that shared their engines, or of one run, each by its own book.

    Raises `StorageError`, also where a ledger is missing.
    """
    ledgers = [ledger(run) for run in runs]
    times = engine_time(ledgers)
    return [_priced(rows, book, time) for rows, book, time in zip(ledgers, books, times, strict=True)]


def ledger(run: RunData) -> list[LedgerRow]:
    """A run's requests. Raises `StorageError`, also where there must be some and are none."""
    if run.episodes and not run.requests:
        raise RunDirectoryError(f"{run.path} holds episodes and no ledger: is requests.jsonl missing?")
    return run.requests


def spent_usd(rows: Iterable[LedgerRow], prices: Mapping[str, Prices]) -> float:
    """What requests have cost, those whose usage is not known at their worst, in USD.

    Args:
        prices: by model; one that is not among them (its model config was renamed) counts as the dearest of
        these.
    """
    dearest = max(prices.values(), key=lambda list_: list_.output)
    return sum(prices.get(row.model, dearest).cost(row.usage or row.at_most or Usage()) for row in rows)


def token_line(rows: Iterable[LedgerRow]) -> Line:
    """Rows of any ledger added up, without prices."""
    return _line(list(rows), None, None, None)


def _priced(rows: Sequence[LedgerRow], book: PriceBook, time: EngineTime) -> RunCosts:
    groups: dict[tuple[Any, ...], list[int]] = {}  # rows that differ in their figures alone: many of few
    for place, row in enumerate(rows):
        groups.setdefault((row.model, row.wasted, *row.labels, *row.labels.values()), []).append(place)
    lines: dict[Labels, Line] = {}
    unpriced: dict[str, None] = {}
    for places in groups.values():
        own = [rows[place] for place in places]
        shares = [seconds for place in places if (seconds := time.requests[place]) is not None]
        seconds, model = sum(shares) if shares else None, own[0].model
        labels = Labels.of(own[0].labels)
        line = _line(own, book.models.get(model), seconds, book.by_time(model, seconds))
        lines[labels] = lines.get(labels, Line()) + line
        if line.usd is None:
            unpriced[model] = None
    idle = [Line(engine_s=seconds, usd=book.by_time(model, seconds)) for model, seconds in time.idle.items()]
    return RunCosts(book, lines, sum(idle, Line()) if idle else None, list(unpriced))


def _line(
    rows: Sequence[LedgerRow], prices: Prices | None, seconds: float | None, usd_by_time: float | None
) -> Line:
    """Rows of one model added up; all of them were wasted, or none, where they have a price."""
    tokens = _tokens(row.usage for row in rows)
    wasted = _tokens(row.usage for row in rows if row.wasted)
    by_class = None if prices is None else tokens.times(prices)
    usd = by_class.total if by_class else usd_by_time
    most = _tokens(row.at_most for row in rows if row.usage is None)
    known = [row for row in rows if row.cacheable is not None]
    return Line(
        requests=len(rows),
        tokens=tokens,
        wasted=wasted,
        usd_by_class=by_class,
        usd=usd,
        wasted_usd=usd if usd is None or rows[0].wasted else 0.0,
        engine_s=seconds,
        unreported=sum(row.usage is None and row.at_most is not None for row in rows),
        at_most=most,
        at_most_usd=0.0 if prices is None else most.times(prices).total,
        cacheable=sum(row.cacheable or 0 for row in known),
        from_cache=sum(row.usage.cached for row in known if row.usage),
        cacheable_in=len(known),
        thought_cut=sum(row.thought_cut for row in rows),
    )


def _tokens(usages: Iterable[Usage | None]) -> Classes:
    known = [usage for usage in usages if usage is not None]
    prompt, cached, completion, reasoning = (
        sum(getattr(usage, name) for usage in known) for name in Usage.__struct_fields__
    )
    return Classes.of(Usage(prompt, cached, completion, reasoning))


def _position(phase: str, policy: int | None) -> tuple[int, str]:
    """By policy; for one policy evaluation and wake, then the sleep after them."""
    return -1 if policy is None else policy, {"test": "0", "train": "1", "sleep": "2"}.get(phase, phase)


def _sum(one: Any, other: Any) -> Any:
    """What is not there adds nothing."""
    return other if one is None else one if other is None else one + other
