"""Price lists, and the selection of the list for a run's requests."""

from __future__ import annotations

import msgspec

from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, PricesConfig
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

GPU_HOURS = "gpu-hours"
"""Selects engine time at a price per GPU-hour instead of a price list."""

OWN = "the run's own"
"""Name of the prices that a run itself used."""


class PriceBook(msgspec.Struct, frozen=True):
    """The price of each request of one run.

    Attributes:
        name: name for people.
        models: the price list of each model that is paid by the token.
        gpus: number of GPUs, over all replicas, of each model that is paid by the hour.
        gpu_hour_usd: USD for one hour of one GPU.
    """

    name: str
    models: dict[str, Prices]
    gpus: dict[str, int] = {}
    gpu_hour_usd: float | None = None

    def by_tokens(self, model: str | None, usage: Usage | None) -> float | None:
        """Return the USD for a model's tokens; `None` if its price list or the tokens are unknown."""
        prices = self.models.get(model or "")
        return None if prices is None or usage is None else prices.cost(usage)

    def by_time(self, model: str, seconds: float | None) -> float | None:
        """Return the USD for seconds of a model's engine; `None` if it is not paid by time, or they are
        unknown."""
        if seconds is None or self.gpu_hour_usd is None or model not in self.gpus:
            return None
        return seconds / 3600 * self.gpus[model] * self.gpu_hour_usd


def price_book(run: RunData, prices: str | None = None, gpu_hour_usd: float | None = None) -> PriceBook:
    """Return the prices to use for a run.

    Args:
        prices: a file of `configs/prices/` (`model`: the model configs' own lists, as the run stored
            them); `gpu-hours`: measured engine time, on the GPUs that the model config names for all its
            replicas (a hosted model keeps its list); `None`: the prices of the run's newest process.
        gpu_hour_usd: USD per GPU-hour, for `gpu-hours`.

    Raises:
        InvalidConfig: the price list does not exist, or the price of a GPU-hour is missing or unused.
        InvalidModelConfig: the run's model config names no GPU.
        StorageError: the run cannot be read.
    """
    if (prices == GPU_HOURS) != (gpu_hour_usd is not None):
        raise InvalidConfig(
            f"--prices {GPU_HOURS} and --gpu-hour USD need each other: give the price of one GPU for one hour"
        )
    if not run.processes:
        raise RunDirectoryError(
            f"{run.path} has no prices: processes.jsonl, which records them, has no complete row"
        )
    newest = run.processes[-1]
    model_configs = {model_config.name: model_config for model_config in (newest.actor, newest.inducer)}
    if gpu_hour_usd is not None:
        taken = [[each.gpus * each.replicas for each in (one.actor, one.inducer)] for one in run.processes]
        if any(each != taken[-1] for each in taken):
            raise InvalidConfig(f"{run.path} was played on different numbers of GPUs: it has no GPU-hours")
        return PriceBook(
            name=f"{gpu_hour_usd:g} USD per GPU-hour",
            models={
                name: model_config.prices
                for name, model_config in model_configs.items()
                if model_config.hosted
            },
            gpus={
                name: _gpus(model_config)
                for name, model_config in model_configs.items()
                if not model_config.hosted
            },
            gpu_hour_usd=gpu_hour_usd,
        )
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


def _gpus(model_config: ModelConfig) -> int:
    if not model_config.gpus:
        raise InvalidModelConfig(
            f"model {model_config.name!r} uses no GPU (gpus: 0 in its model config), so it has no"
            " GPU-hours to price; every price list shows its engine time"
        )
    return model_config.gpus * model_config.replicas
