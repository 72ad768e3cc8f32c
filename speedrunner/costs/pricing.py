"""What a finished run's requests cost by one price list or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from serving.cards import ModelCard, adapted, load_card
from serving.errors import InvalidCard
from serving.usage import Prices
from speedrunner.config.check import InvalidConfig, checked, suggest
from speedrunner.config.compose import CONFIGS, group_choices
from speedrunner.config.schema import VERSIONS, Config, PricesConfig, from_mapping
from speedrunner.costs.rollout_costs import RolePrices
from speedrunner.store.data import RunData

GPU_HOURS = "gpu-hours"
"""Instead of a price list: engine time by a price per GPU-hour."""


@dataclass(frozen=True)
class PriceBook:
    """The price of each request of one run.

    Attributes:
        name: what people call it.
        models: the price list of each model that the run used; `None` where its requests have no price per
            token.
        gpus: GPUs that each of them took, all replicas together; empty where GPU-hours are not what is paid.
        gpu_hour_usd: USD for one hour of one of them.
    """

    name: str
    models: Mapping[str, Prices | None]
    gpus: Mapping[str, int]
    gpu_hour_usd: float = 0.0

    def by_token(self, model: str) -> Prices | None:
        """The price list of a model's requests; `None` where they are not paid by the token."""
        return self.models.get(model)

    def by_time(self, model: str, seconds: float) -> float | None:
        """USD for so many seconds of a model's engine; `None` where it is not paid by the hour."""
        gpus = self.gpus.get(model)
        return None if gpus is None else seconds / 3600 * gpus * self.gpu_hour_usd

    @property
    def roles(self) -> RolePrices | None:
        """The price lists by role, for what a rollout costs; `None` where one is not paid by the token."""
        lists = list(self.models.values())
        first, last = lists[0], lists[-1]
        return None if first is None or last is None else RolePrices(actor=first, others=last)


def price_book(run: RunData, prices: str | None = None, gpu_hour_usd: float | None = None) -> PriceBook:
    """The prices to be put on a run.

    Args:
        prices: a file of `configs/prices/` (`card`: the model cards' own lists); `gpu-hours`: measured engine
            time, on the GPUs that the card names for all its replicas (a hosted model keeps its list);
            `None`: the list that the run itself went by.
        gpu_hour_usd: USD per GPU-hour, for `gpu-hours`.

    Raises:
        InvalidConfig: there is no such price list, or the price of a GPU-hour is missing or in vain.
        InvalidCard: the run's model card is needed and not there, or names no GPU.
        StorageError: the run cannot be read.
    """
    if (prices == GPU_HOURS) != (gpu_hour_usd is not None):
        raise InvalidConfig(
            f"--prices {GPU_HOURS} and --gpu-hour USD go together: the price of one GPU for one hour"
        )
    config = run_config(run)
    if prices == GPU_HOURS:
        assert gpu_hour_usd is not None
        cards = _cards(config)
        return PriceBook(
            name=f"{gpu_hour_usd:g} USD per GPU-hour",
            models={card.name: card.prices if card.hosted else None for card in cards},
            gpus={card.name: _gpus(card) for card in cards if not card.hosted},
            gpu_hour_usd=gpu_hour_usd,
        )
    chosen = config.prices if prices is None else price_list(prices)
    if None in (chosen.uncached, chosen.cached, chosen.output):
        lists = {card.name: in_place_of(card.prices, chosen) for card in _cards(config)}
        return PriceBook(name=prices or "the run's own", models=lists, gpus={})
    one = in_place_of(Prices(0, 0, 0), chosen)
    models = dict.fromkeys((row.model for row in run.requests), one) or {config.model.card: one}
    return PriceBook(name=prices or "the run's own", models=models, gpus={})


def price_list(name: str) -> PricesConfig:
    """A file of `configs/prices/`. Raises `InvalidConfig`."""
    known = [*group_choices("prices"), GPU_HOURS]
    if name not in known[:-1]:
        raise InvalidConfig(
            f"--prices {name} is no price list{suggest(name, known)}; there are {', '.join(known)}"
        )
    file = CONFIGS / "prices" / f"{name}.yaml"
    try:
        return checked(PricesConfig, yaml.safe_load(file.read_text(encoding="utf-8")))
    except (InvalidConfig, OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InvalidConfig(f"--prices {name}: {file}: {' '.join(str(error).split())}") from None


def in_place_of(own: Prices, other: PricesConfig) -> Prices:
    """A card's list with what another one names in its place."""
    return Prices(
        uncached=own.uncached if other.uncached is None else other.uncached,
        cached=own.cached if other.cached is None else other.cached,
        output=own.output if other.output is None else other.output,
    )


def run_config(run: RunData) -> Config:
    """A run's configuration, typed. Raises `InvalidConfig`."""
    content: dict[str, Any] = {key: value for key, value in run.config.items() if key != VERSIONS}
    try:
        return from_mapping(content)
    except InvalidConfig as error:
        raise InvalidConfig(f"{run.path / 'config.yaml'}: {error}") from None


def _cards(config: Config) -> list[ModelCard]:
    """The actor's card, then that of every other role where it is another one."""
    model = config.model
    actor = adapted(load_card(model.card), replicas=model.replicas, load_format=model.load_format)
    return [actor] if model.inducer is None else [actor, load_card(model.inducer)]


def _gpus(card: ModelCard) -> int:
    if not card.gpus:
        raise InvalidCard(
            f"model {card.name!r} takes no GPU (its card says gpus: 0), so it has no GPU-hours to be priced;"
            " its engine time is shown with every price list"
        )
    return card.gpus * card.replicas
