"""What a configuration names, made and checked; nothing is started."""

from __future__ import annotations

from dataclasses import dataclass

import envs
from envs import Split, TextEnv
from serving.cards import ModelCard
from serving.usage import Prices
from speedrunner import methods
from speedrunner.agents.actor import EpisodeLimits
from speedrunner.config.models import actor_card, inducer_card, prices_of
from speedrunner.config.schema import Config
from speedrunner.methods.base import Method, returned
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
    def prices(self) -> dict[str, Prices]:
        """The price list of each model."""
        return prices_of(self.config, self.card, self.inducer_card)

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
        if start_from is not None:
            return stored_policy(start_from)
        return returned(self.method, "initial", self.method.initial(), Policy)


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
        inducer_card=inducer_card(config, card),
    )
    require(setup.sandbox())
    return setup
