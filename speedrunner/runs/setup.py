"""Create and check everything that a configuration names; nothing is started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

import envs
from envs import EnvironmentFault, Limits, Opening, Split, TextEnv
from serving.engine.gpus import Gpu
from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.options import ServiceOptions, running_endpoint
from serving.usage import Prices
from serving.weights import prepare
from speedrunner.agents.actor import ActorSpec
from speedrunner.agents.loop import plain_messages
from speedrunner.config.named import actor_model_config, inducer_model_config
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.methods import method_registry as methods
from speedrunner.methods.method_base import Method, MethodBroke, UnfitEnvironment, check_returned
from speedrunner.methods.method_registry import InvalidMethodOption, UnknownMethod
from speedrunner.runs.plan import InvalidPlan, Step, plan_run
from speedrunner.runs.stored_policy import find_policy, first_policy
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Policy
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.worker_pool import WorkerPool

SETUP_ERRORS = (
    *(EnvironmentFault, InvalidModelConfig, InvalidConfig, InvalidMethodOption, InvalidPlan, MethodBroke),
    *(UnfitEnvironment, UnknownMethod),
)
"""Errors in a configuration that are found before anything starts."""

SMALL_CONTEXT = 4096
"""Tokens of the largest context in which an observation can make a difference."""


@dataclass(frozen=True)
class Setup:
    """Everything that a configuration names, created and checked; nothing is started."""

    config: Config
    env: TextEnv
    """Its limits are those of the configuration and the model; see `make_env`."""
    split: Split
    method: Method
    model_config: ModelConfig
    inducer_model_config: ModelConfig
    """Model config of every role except the actor; often the same."""
    gpus: Sequence[Sequence[Gpu]] | None = None
    """GPUs of each service; `None` before `sized_setup` has divided them."""

    @property
    def prices(self) -> dict[str, Prices]:
        """Return the price list of each model."""
        model_configs = (self.model_config, self.inducer_model_config)
        return {
            model_config.name: self.config.prices.in_place_of(model_config.prices)
            for model_config in model_configs
        }

    @property
    def services(self) -> list[tuple[ModelConfig, ServiceOptions]]:
        """Return how each model is served: the actor's, and the inducer's if it is another."""
        served: list[tuple[ModelConfig, ServiceOptions]] = [(self.model_config, self.config.serving)]
        if self.inducer_model_config is not self.model_config:
            # A server given by address or port is the actor's.
            served.append((self.inducer_model_config, self.config.serving.elsewhere()))
        return served

    def plan(self) -> list[Step]:
        """Return the steps of the run. Raises `InvalidPlan`."""
        return plan_run(self.split, self.config.run, trains=self.method.trains)

    def workers(self, size: int, log: Path | None = None) -> WorkerPool:
        """Create workers of the environment; their error streams go to `log`, if given."""
        env = self.config.env
        return WorkerPool(size, env.name, env.options, log, self.config.sandbox)

    @property
    def carries_history(self) -> bool:
        """Whether a new run copies the training history of the run that it starts from."""
        run = self.config.run
        return run.carry_history and run.start_from is not None and run.rollouts > 0 and self.method.trains

    def initial_policy(self) -> Policy:
        """Return the first policy: the method's own, or a copy of another run's.

        Raises:
            RunDirectoryError: the policy does not exist, is damaged, or contains nothing that the method's
                actor uses.
            InvalidConfig: the configuration requests a part of a stored library, and names no run.
        """
        start_from = self.config.run.start_from
        if start_from is None:
            if part := self.config.library.settings():
                raise InvalidConfig(f"{' '.join(part)} needs a stored library: set run.start_from=RUN")
            return check_returned(self.method, "initial", self.method.initial(), Policy)
        policy = first_policy(*find_policy(start_from))
        try:
            spec = self.actor_spec(policy)
            spec.with_part(self.config.library)
        except InvalidPolicy as error:
            raise RunDirectoryError(f"run.start_from={start_from}: {error}") from error
        lost = [f"{len(policy.skills)} skills"] if policy.skills and not spec.library.skills else []
        lost += ["notes"] if policy.notes and not spec.notes else []
        if lost:
            raise RunDirectoryError(
                f"run.start_from={start_from} has {' and '.join(lost)}, which method"
                f" {self.config.method.name} does not use: set method= to the one that learned them"
            )
        return policy

    def actor_spec(self, policy: Policy) -> ActorSpec:
        """Return the method's actor with a policy, in an evaluation. Raises `InvalidPolicy`."""
        task = [*self.split.test, *self.split.train][0]
        return check_returned(self.method, "agent", self.method.agent(policy, task, self.env), ActorSpec)


def set_up(
    config: Config, model_configs: tuple[ModelConfig, ModelConfig] | None = None, *, plays_here: bool = True
) -> Setup:
    """Create what a configuration names.

    Args:
        model_configs: the actor's and the inducer's, as recorded by a run; `None`: those that the
            configuration names.
        plays_here: whether this machine is to play; login nodes often cannot isolate processes.

    Raises:
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidModelConfig: a named part does not exist
        or is invalid.
        UnfitEnvironment: the method cannot play in the environment.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """
    method = methods.make(config.method.name, **config.method.options)
    learns = method.trains
    model_config, inducer = model_configs or (actor_model_config(config, learns=learns), None)
    setup = Setup(
        config=config,
        env=make_env(config, model_config),
        split=envs.splits(config.env.name, **config.env.options),
        method=method,
        model_config=model_config,
        inducer_model_config=inducer or inducer_model_config(config, model_config, learns=learns),
    )
    setup.method.check(setup.env)
    if plays_here:
        require(config.sandbox)
    return setup


def check_models(setup: Setup, policy: Policy) -> int:
    """Check the models of a new run against their files, and that the actor's first request fits its context.

    In a large context its observation is left out: a simulator takes seconds to open a task, in each run of a
    sweep, and observations are short. Skills are left out, too: an episode with too many of them ends scored
    as it stands.

    Returns the tokens of the first request with the skills that the actor sees, which may be more than the
    context; 0 if unknown.

    Raises `InvalidConfig` if the request without skills does not fit, and the errors of `check_files`,
    `prepare` and `make_env`.
    """
    from serving.new_model_config import check_files  # heavy
    from serving.tokens.transcript import Transcript

    tokenizer = None
    for each, options in reversed(setup.services):
        if not each.hosted:
            starts = running_endpoint(each, options) is None
            tokenizer = check_files(each, prepare(each, lambda line: None), starts=starts)
    model_config, context = setup.model_config, setup.model_config.context
    if tokenizer is None or model_config.hosted:
        return 0

    opening = Opening("", "")
    if context <= SMALL_CONTEXT:
        with closing(make_env(setup.config, model_config)) as env:
            opening = env.reset([*setup.split.test, *setup.split.train][0])

    def count_tokens(spec: ActorSpec) -> int:
        messages = plain_messages(spec.messages(setup.env, opening, setup.config.run.wording))
        tools = spec.list_tools(setup.env)
        return len(Transcript(model_config, spec.role, tokenizer, messages, tools).ids)

    tokens = count_tokens(setup.actor_spec(msgspec.structs.replace(policy, module="", skills=())))
    if tokens >= context:
        raise InvalidConfig(f"model.context={context}: the actor's first prompt has at least {tokens} tokens")
    return count_tokens(setup.actor_spec(policy).with_part(setup.config.library)) if policy.skills else tokens


def describe_overflow(tokens: int, context: int) -> list[str]:
    """Return a warning if the actor's first prompt fills its context; otherwise nothing."""
    text = f"warning: the actor's first prompt has at least {tokens:,} tokens, and its context {context:,}"
    return [f"{text}: every episode will end with context_overflow"] * (tokens >= context)


def make_env(config: Config, model_config: ModelConfig) -> TextEnv:
    """Create a configuration's environment with the limits of a run's episodes, which agents read. Raises
    `EnvironmentFault`."""
    env = envs.make(config.env.name, **config.env.options)
    limits = [each for each in (config.run.max_actions, env.limits.actions) if each is not None]
    calls = model_config.role("actor").calls(env.limits.llm_calls)
    env.limits = Limits(calls, min(limits, default=None))
    return env
