"""Create and check everything that a configuration names; nothing is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import envs
from envs import EnvironmentFault, Limits, Opening, Split, TextEnv
from serving.engine.gpus import Gpu
from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.model_configs import adapt, load_model_config
from serving.options import ServiceOptions, running_endpoint
from serving.usage import Prices
from serving.weights import prepare
from speedrunner.agents.actor import ActorSpec
from speedrunner.agents.loop import plain_messages
from speedrunner.config.names import split_version
from speedrunner.config.schema import Config, InvalidConfig, LibraryConfig
from speedrunner.methods import method_registry as methods
from speedrunner.methods.method_base import Method, MethodBroke, UnfitEnvironment
from speedrunner.methods.method_registry import InvalidMethod
from speedrunner.runs.plan import InvalidPlan, Step, plan_run
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.worker_pool import WorkerPool

SETUP_ERRORS = (
    *(EnvironmentFault, InvalidModelConfig, InvalidConfig, InvalidMethod, InvalidPlan, MethodBroke),
    UnfitEnvironment,
)
"""Errors in a configuration that are found before anything starts."""


@dataclass(frozen=True)
class Setup:
    """Everything that a configuration names, created and checked; nothing is started."""

    config: Config
    env: TextEnv
    """Its limits are those of the configuration and the model; see `make_env`."""
    split: Split
    method: Method
    model_config: ModelConfig
    """Model config of all roles."""
    gpus: Sequence[Gpu] | None = None
    """The server's GPUs; `None` before `fit_model` has found them."""

    @property
    def prices(self) -> Prices:
        """Return the price list of the model."""
        return self.config.prices.in_place_of(self.model_config.prices)

    @property
    def service(self) -> tuple[ModelConfig, ServiceOptions]:
        """Return how the model is served."""
        return self.model_config, self.config.serving

    @property
    def starts_server(self) -> bool:
        """Return whether the run starts a server."""
        return self.model_config.base_url is None and self.config.serving.url is None

    @property
    def needed_gpus(self) -> int:
        """Return the GPUs that this server takes."""
        return self.model_config.all_gpus if self.starts_server else 0

    def plan(self) -> list[Step]:
        """Return the steps of the run. Raises `InvalidPlan`."""
        return plan_run(self.split, self.config.run, trains=self.method.trains)

    def workers(self, size: int, log: Path | None = None) -> WorkerPool:
        """Create workers of the environment; their error streams go to `log`, if given."""
        env = self.config.env
        return WorkerPool(size, env.name, env.options, log, self.config.sandbox)

    def initial_policy(self) -> Policy:
        """Return the first policy: the method's own, or a copy of another run's.

        Raises:
            RunDirectoryError: the policy does not exist, is damaged, or contains nothing that the method's
                actor uses.
            InvalidConfig: the configuration requests a part of a stored library, and names no run.
        """
        start_from = self.config.run.start_from
        if start_from is None:
            if self.config.library != LibraryConfig():
                raise InvalidConfig(f"{self.config.library} needs a stored library: set run.start_from=RUN")
            return self.method.initial()
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
        return self.method.agent(policy, task, self.env)


def set_up(config: Config, model_config: ModelConfig | None = None, *, plays_here: bool = True) -> Setup:
    """Create what a configuration names.

    Args:
        model_config: as recorded by a run; `None`: the one that the configuration names.
        plays_here: whether this machine is to play; login nodes often cannot isolate processes.

    Raises:
        EnvironmentFault, InvalidMethod, InvalidModelConfig: a named part does not exist
        or is invalid.
        UnfitEnvironment: the method cannot play in the environment.
        SandboxError: skills cannot be isolated on this machine.
    """
    method = methods.make(config.method.name, **config.method.options)
    model_config = model_config or choose_model_config(config, learns=method.trains)
    setup = Setup(
        config=config,
        env=make_env(config, model_config),
        split=envs.splits(config.env.name, **config.env.options),
        method=method,
        model_config=model_config,
    )
    setup.method.check(setup.env)
    if plays_here:
        require(config.sandbox)
    return setup


def choose_model_config(config: Config, *, learns: bool = True) -> ModelConfig:
    """Return the model config with the configuration's changes. Answers of an inducer must fit its context
    only if the method `learns`. Raises `InvalidModelConfig`."""
    model = config.model
    return adapt(
        load_model_config(model.name),
        replicas=model.replicas,
        load_format=model.load_format,
        prefix_caching=model.prefix_caching,
        context=model.context,
        roles={"actor": model.actor, "inducer": model.inducer},
        used=["actor", "inducer"] if learns else ["actor"],
    )


def check_model(setup: Setup, policy: Policy) -> None:
    """Check the model of a new run against its files, and that the actor's first prompt fits its context.

    The prompt is counted without an observation, since a simulator takes seconds to open a task, and without
    skills: an episode with too many of them ends scored as it stands.

    Raises `InvalidConfig` if it does not fit, and the errors of `check_files` and `prepare`.
    """
    from serving.model_files import check_files  # heavy
    from serving.tokens.transcript import Transcript

    model_config = setup.model_config
    if model_config.hosted:
        return
    starts = running_endpoint(*setup.service) is None
    tokenizer = check_files(model_config, prepare(model_config, lambda line: None), starts=starts)
    if tokenizer is None:
        return
    spec = setup.actor_spec(msgspec.structs.replace(policy, module="", skills=()))
    messages = plain_messages(spec.messages(setup.env, Opening("", ""), setup.config.run.wording))
    tokens = len(Transcript(model_config, spec.role, tokenizer, messages, spec.list_tools(setup.env)).ids)
    if tokens >= model_config.context:
        raise InvalidConfig(
            f"model.context={model_config.context}: the actor's first prompt has at least {tokens} tokens"
        )


def make_env(config: Config, model_config: ModelConfig) -> TextEnv:
    """Create a configuration's environment with the limits of a run's episodes, which agents read. Raises
    `EnvironmentFault`."""
    env = envs.make(config.env.name, **config.env.options)
    limits = [limit for limit in (config.run.max_actions, env.limits.actions) if limit is not None]
    calls = model_config.role("actor").calls(env.limits.llm_calls)
    env.limits = Limits(calls, min(limits, default=None))
    return env


def find_policy(name: str) -> tuple[RunData, int]:
    """Return the run in `RUN[:VERSION]` and the version, by default its newest.

    Raises `RunDirectoryError`: the run does not exist, or has no policy.
    """
    path, wanted = split_version(name)
    if wanted is not None and not wanted.isdecimal():
        raise RunDirectoryError(f"{name!r} is not a policy; write RUN or RUN:VERSION, such as runs/demo:2")
    run = load(path)
    there = run.policies.versions()
    if not there:
        raise RunDirectoryError(f"{run.path} has no policy yet")
    version = there[-1] if wanted is None else int(wanted)
    return run, version


def first_policy(run: RunData, version: int) -> Policy:
    """Return a run's policy as another run's first. Raises `InvalidPolicy`."""
    policy = run.policies.load(version)
    # In the new run they exist from the start; tools are ordered by the sleep of their last edit.
    skills = tuple(msgspec.structs.replace(skill, created=0, edited=0) for skill in policy.skills)
    return msgspec.structs.replace(policy, version=0, skills=skills)
