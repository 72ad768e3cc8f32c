"""Check in a small run that a method fulfils the contract of `speedrunner.methods.Method`.

The run uses fake answers (`fake_model`) and the machinery of any run, without an engine. Its last sleep and
the following steps are played twice from the same records, the second time with a new instance of the method.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, to_yaml
from speedrunner.methods import method_registry as methods
from speedrunner.runs.direct import play_steps
from speedrunner.runs.fake_model import FakeModel
from speedrunner.runs.plan import Sleep, unfinished_steps
from speedrunner.runs.setup import Setup, set_up
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.env_worker import WorkerError

SIZE = ("run.rollouts=4", "run.sleep_every=2", "run.eval_every=4", "run.test_episodes=1", "run.in_flight=2")
"""Two batches with their sleeps, and an evaluation before and after them."""


def check_method(name: str, *overrides: str) -> list[str]:
    """Check that a method keeps the promises of `speedrunner.methods.Method`.

    In a test:

        assert check_method("my_method:MyMethod", "env=crafter") == []

    Args:
        name: as in `method=NAME`.
        overrides: settings of the run, such as `method.OPTION=VALUE` and `env=NAME`.

    Returns:
        One line for each promise that is not kept.

    Raises:
        InvalidConfig, UnknownMethod, InvalidMethodOption, MethodBroke, InvalidPolicy, EnvironmentFault: the
            method or its environment cannot be created, or returned something else than promised.
        WorkerError, SandboxUnavailable: the environment or the sandbox failed.
        Exception: whatever the method raises.
    """
    config = compose([f"method={name}", *overrides, *SIZE])
    with TemporaryDirectory() as folder:
        first, again = Path(folder, "first"), Path(folder, "again")
        found = _play(config, first, again)
        return found or _play(config, again, None) or list(_differences(load(first), load(again)))


def _play(config: Config, folder: Path, copy: Path | None) -> list[str]:
    """Start or resume the run in a folder, with a new instance of the method; return the broken promises.

    Args:
        copy: receives the records before the last sleep, or before the last evaluation if there is no sleep.
    """
    setup = set_up(config)
    try:
        asyncio.run(_play_run(setup, folder, copy))
    finally:
        run = load(folder)
        for played in (*run.trajectories(), *run.evaluations()):
            if played.termination.is_fault:
                raise WorkerError(f"{played.task} ended by {played.termination}: {played.fault}")
    return list(dict.fromkeys(_agent_findings(setup, run)))


async def _play_run(setup: Setup, folder: Path, copy: Path | None) -> None:
    steps, model = setup.plan(), FakeModel()
    last = max((n for n, step in enumerate(steps) if isinstance(step, Sleep)), default=len(steps) - 1)

    async def execute(first: int, end: int) -> None:
        await play_steps(setup, directory, model, pool, unfinished_steps(steps[first:end], directory.read()))

    with RunDirectory.open_for_writing(folder) as directory:
        if copy is not None:
            directory.write_config(to_yaml(setup.config))
            directory.write_policy(setup.initial_policy())
        async with setup.workers(setup.config.run.in_flight) as pool:
            if copy is not None:
                await execute(0, last)
                shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("lock"))
            await execute(last, len(steps))
    await model.engine.close()


def _agent_findings(setup: Setup, run: RunData) -> Iterator[str]:
    """Check that `initial` and `agent` return equal results for equal arguments and do not modify them."""
    second = methods.make(setup.config.method.name, **setup.config.method.options)
    if setup.method.initial() != second.initial():
        yield "initial: two calls returned different Policies"
    for played in (*run.trajectories(), *run.evaluations()):
        policy = run.policies.load(played.policy)
        before = msgspec.json.encode(policy)
        spec, *others = (
            each.agent(policy, played.task, setup.env, training=played.episode.startswith("train/"))
            for each in (setup.method, setup.method, second)
        )
        if any(other != spec for other in others):
            yield "agent: two calls returned different ActorSpecs for the same policy and task"
        if msgspec.json.encode(policy) != before:
            yield "agent: changed the policy that was passed to it"


def _differences(first: RunData, again: RunData) -> Iterator[str]:
    """Yield the differences between the two results of the run."""
    instance = "a new instance of the method"
    newest = first.policies.versions()[-1]
    one, other = (msgspec.structs.asdict(run.policies.load(newest)) for run in (first, again))
    if differ := ", ".join(name for name in one if one[name] != other[name]):
        yield f"sleep: {instance} made another policy from the same records: {differ} of v{newest:04d} differ"
        return
    for played, repeated in zip(first.evaluations(), again.evaluations(), strict=True):
        turns = ([(turn.messages, turn.call) for turn in each.turns] for each in (played, repeated))
        if played.prompt_hash != repeated.prompt_hash:
            yield f"agent: {instance} gave the actor another prompt for the same policy and task"
        elif next(turns) != next(turns):
            yield f"play: {instance} played the same task differently with the same answers"
