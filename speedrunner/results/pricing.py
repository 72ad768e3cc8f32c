"""Price lists, and the selection of the list for a run's requests."""

from __future__ import annotations

import msgspec

from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import PricesConfig
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

OWN = "the run's own"
"""Name of the prices that a run itself used."""


class PriceBook(msgspec.Struct, frozen=True):
    """The price of each request of one run.

    Attributes:
        name: name for people.
        models: the price list of each model that is paid by the token.
    """

    name: str
    models: dict[str, Prices]

    def by_tokens(self, model: str | None, usage: Usage | None) -> float | None:
        """Return the USD for a model's tokens; `None` if its price list or the tokens are unknown."""
        prices = self.models.get(model or "")
        return None if prices is None or usage is None else prices.cost(usage)


def price_book(run: RunData, prices: str | None = None) -> PriceBook:
    """Return the prices to use for a run.

    Args:
        prices: a file of `configs/prices/` (`model`: the model configs' own lists, as the run stored
            them); `None`: the prices of the run's newest process.

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
        return PriceBook(OWN, newest.prices)
    chosen = price_list(prices)
    own = {name: model_config.prices for name, model_config in model_configs.items()}
    if None not in msgspec.structs.astuple(chosen):
        own |= dict.fromkeys((row.model for row in run.requests), Prices(0, 0, 0))
    return PriceBook(prices, {model: chosen.in_place_of(list_) for model, list_ in own.items()})


def price_list(name: str) -> PricesConfig:
    """Return a file of `configs/prices/`. Raises `InvalidConfig`."""
    return compose([f"prices={name}"]).prices
