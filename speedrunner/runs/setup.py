"""What a configuration names, made and checked; nothing is started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import envs
from envs import EnvironmentFault, Split, TextEnv
from serving.deployment import running_endpoint
from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.options import ServiceOptions
from serving.usage import Prices
from speedrunner.config.named import actor_model_config, inducer_model_config
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.methods import registry as methods
from speedrunner.methods.base import Method, MethodBroke, UnfitEnvironment, returned
from speedrunner.methods.registry import InvalidMethodOption, UnknownMethod
from speedrunner.runs.plan import InvalidPlan, Step, plan_run
from speedrunner.runs.stored_policy import stored_policy
from speedrunner.sandbox.child_process import require
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Policy, TrainingEnd
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.workers.worker_pool import WorkerPool

SETUP_ERRORS = (
    *(EnvironmentFault, InvalidModelConfig, InvalidConfig, InvalidMethodOption, InvalidPlan, MethodBroke),
    *(UnfitEnvironment, UnknownMethod),
)
"""What may be wrong with what a configuration names, before anything starts."""


@dataclass(frozen=True)
class Setup:
    """Everything that a configuration names, made and checked; nothing is started."""

    config: Config
    env: TextEnv
    split: Split
    method: Method
    model_config: ModelConfig
    inducer_model_config: ModelConfig
    """Of every role but the actor; often the same."""

    @property
    def prices(self) -> dict[str, Prices]:
        """The price list of each model."""
        model_configs = (self.model_config, self.inducer_model_config)
        return {
            model_config.name: self.config.prices.in_place_of(model_config.prices)
            for model_config in model_configs
        }

    @property
    def services(self) -> list[tuple[ModelConfig, ServiceOptions]]:
        """How each model is served: the actor's, and the inducer's if it is another."""
        served: list[tuple[ModelConfig, ServiceOptions]] = [(self.model_config, self.config.serving)]
        if self.inducer_model_config is not self.model_config:
            # A server that is named by address or port is the actor's.
            served.append((self.inducer_model_config, self.config.serving.elsewhere()))
        return served

    def plan(self, ended: TrainingEnd | None = None) -> list[Step]:
        """The steps of the run, whose training may have ended before. Raises `InvalidPlan`."""
        method = self.method
        return plan_run(
            self.split, self.config.run, trains=method.trains, fresh=method.fresh_tasks, ended=ended
        )

    def check_keys(self) -> None:
        """Raise `InvalidModelConfig` or `ServerFailed` where an API key is missing, or is none."""
        for model_config, options in self.services:
            running_endpoint(model_config, options)

    def workers(self, size: int, log: Path | None = None) -> WorkerPool:
        """Workers of the environment, whose error streams go to `log`, if anywhere."""
        env = self.config.env
        return WorkerPool(size, env.name, env.options, log, self.config.sandbox.limits)

    def initial_policy(self) -> Policy:
        """The first policy: the method's own, or a copy of another run's.

        Raises:
            RunDirectoryError: there is no such policy, it is damaged, or the method's actor would get nothing
                of it.
            InvalidConfig: the last of its skills are asked for, and it has none.
        """
        start_from = self.config.run.start_from
        if start_from is None:
            if (last := self.config.library.visible_last) is not None:
                raise InvalidConfig(
                    f"library.visible_last={last} needs a stored library: set run.start_from=RUN"
                )
            return returned(self.method, "initial", self.method.initial(), Policy)
        policy = stored_policy(start_from)
        task = [*self.split.test, *self.split.train][0]
        try:
            spec = self.method.agent(policy, task, self.env)
        except InvalidPolicy as error:
            raise RunDirectoryError(f"run.start_from={start_from}: {error}") from error
        lost = [f"{len(policy.skills)} skills"] if policy.skills and not spec.library.skills else []
        lost += ["notes"] if policy.notes and not spec.notes else []
        if lost:
            raise RunDirectoryError(
                f"run.start_from={start_from} has {' and '.join(lost)}, of which method"
                f" {self.config.method.name} makes no use: name the method that learnt them"
            )
        return policy


def set_up(
    config: Config, model_configs: tuple[ModelConfig, ModelConfig] | None = None, *, plays_here: bool = True
) -> Setup:
    """Make what a configuration names.

    Args:
        model_configs: the actor's and the inducer's, as a run has recorded them; `None`: those that it names.
        plays_here: whether this machine is to play; login nodes often isolate nothing.

    Raises:
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidModelConfig: something in it does not
        exist.
        UnfitEnvironment: the method cannot play in the environment.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """
    model_config, inducer = model_configs or (actor_model_config(config), None)
    env = envs.make(config.env.name, **config.env.options)
    if (most := config.run.max_actions) is not None:
        env.limits = replace(env.limits, actions=min(most, env.limits.actions or most))
    setup = Setup(
        config=config,
        env=env,
        split=envs.splits(config.env.name, **config.env.options),
        method=methods.make(config.method.name, **config.method.options),
        model_config=model_config,
        inducer_model_config=inducer or inducer_model_config(config, model_config),
    )
    setup.method.check(setup.env)
    if plays_here:
        require(config.sandbox.limits)
    return setup
