"""What a configuration names, made and checked; nothing is started."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

import envs
from envs import Split, TextEnv
from serving.cards import ModelCard, adapted, load_card
from serving.deployment import ServiceOptions
from serving.usage import Prices
from speedrunner import methods
from speedrunner.agents.actor import EpisodeLimits
from speedrunner.config.schema import Config, ModelConfig
from speedrunner.costs.pricing import in_place_of
from speedrunner.costs.rollout_costs import RolePrices
from speedrunner.methods.base import Method
from speedrunner.runs.plan import Step, plan_run
from speedrunner.runs.stored_policy import stored_policy
from speedrunner.sandbox.child_process import require
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import Policy


@dataclass(frozen=True)
class Setup:
    """Everything that a configuration names, made and checked; nothing is started."""

    config: Config
    env: TextEnv
    split: Split
    method: Method
    card: ModelCard
    inducer_card: ModelCard
    """Of every role but the actor; often the same."""

    @property
    def prices(self) -> RolePrices:
        """The price lists: the cards' own, or the one that the configuration puts in their place."""
        return RolePrices(actor=self._prices(self.card), others=self._prices(self.inducer_card))

    def plan(self) -> list[Step]:
        """The steps of the run. Raises `InvalidPlan`."""
        run = self.config.run
        return plan_run(
            self.split,
            trains=self.method.trains,
            rollouts=run.rollouts,
            sleep_every=run.sleep_every,
            eval_every=run.eval_every,
            test_episodes=run.test_episodes,
        )

    def episode_limits(self) -> EpisodeLimits:
        """Budgets of one episode."""
        run = self.config.run
        return EpisodeLimits(run.wall_clock_s, self.config.sandbox.call_wall_s, run.reply_chars)

    def sandbox(self) -> Sandbox:
        """How skills and inducer code are confined."""
        return Sandbox(self.config.sandbox.kind, self.config.sandbox.memory_mb)

    def initial_policy(self) -> Policy:
        """The first policy: the method's own, or a copy of another run's. Raises `RunDirectoryError`."""
        start_from = self.config.run.start_from
        return self.method.initial() if start_from is None else stored_policy(start_from)

    def _prices(self, card: ModelCard) -> Prices:
        return in_place_of(card.prices, self.config.prices)


def set_up(config: Config) -> Setup:
    """Make what a configuration names.

    Raises:
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidCard: something in it does not exist.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """
    card = actor_card(config)
    setup = Setup(
        config=config,
        env=envs.make(config.env.name, **config.env.options),
        split=envs.splits(config.env.name, **config.env.options),
        method=methods.make(config.method.name, **config.method.options),
        card=card,
        inducer_card=_inducer_card(card, config.model),
    )
    require(setup.sandbox())
    return setup


def actor_card(config: Config) -> ModelCard:
    """The card of the actor's model, with what the configuration changes in it. Raises `InvalidCard`."""
    model = config.model
    return adapted(load_card(model.card), replicas=model.replicas, load_format=model.load_format)


def service_options(config: Config) -> ServiceOptions:
    """How to reach or start the actor's engine."""
    return msgspec.convert(config.serving, ServiceOptions, from_attributes=True)


def _inducer_card(card: ModelCard, model: ModelConfig) -> ModelCard:
    """The card of every role but the actor. Raises `InvalidCard`."""
    other = card if model.inducer is None else load_card(model.inducer)
    if other.name == card.name:
        return card  # one server is enough
    return other if other.hosted else adapted(other, load_format=model.load_format)
