"""Plays the steps of a record one by one, on one server at a time: `speedrunner bench gpu`."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from envs import EnvironmentFault
from serving.deployment import Deployment, deploy
from serving.engine.folders import USUAL as CACHES
from serving.errors import ServerFailed, ServingError
from serving.model_config import ModelConfig
from speedrunner.bench.gpu.gpu_pages import write_page
from speedrunner.bench.gpu.record import Record, StepRecord
from speedrunner.bench.measurement import Measurement
from speedrunner.config.console import Status, prefix_status
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.files import StorageError
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

LONGEST_S = 480.0
"""Longest time of one step in seconds, including the start of its server."""

FOR_PEOPLE = (
    *(EnvironmentFault, WorkerError, InvalidConfig, RunStopped, SandboxError, ServingError, StorageError),
)
"""Errors with a one-line text for users."""

STARTS = ("start-cold", "start-warm")
"""Steps that measure a start; `total` is among their facts."""

Play = Callable[["Bench"], Awaitable[Measurement]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One part of a record.

    Attributes:
        name: name of its file.
        bound_s: seconds after which it counts as failed, without the start of its server.
        play: function that measures.
        server: name of the server that it needs, as described by `model_config`; empty for none.
        model_config: the model config of that server.
        starts: name of a server that the step starts itself and leaves running.
        needs: name of a step that must have a result before.
        skip: why it cannot be played here.
    """

    name: str
    bound_s: float
    play: Play
    server: str = ""
    model_config: Callable[[Record, ModelConfig], ModelConfig] = lambda record, model_config: model_config
    starts: str = ""
    needs: str = ""
    skip: str = ""


@dataclass(frozen=True)
class Left:
    """A step that has not succeeded: why, and the seconds to allow for it."""

    step: str
    reason: str
    needed_s: float


@dataclass
class Bench:
    """The record and the one running server, shared by all steps.

    Attributes:
        longest_start_s: seconds to allow for a start while none was measured.
        aim_s: seconds that the timed part of a step should take.
        status: shows the current activity.
        running: name of the running server; empty if none runs.
    """

    setup: Setup
    record: Record
    longest_start_s: float
    aim_s: float
    status: Status
    running: str = ""
    _deployment: Deployment | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _broken: dict[str, str] = field(default_factory=dict)
    """Why servers did not start in this process."""

    @property
    def deployment(self) -> Deployment:
        """The running server's deployment."""
        assert self._deployment is not None
        return self._deployment

    @property
    def compiled(self) -> Path:
        """Folder for the servers' compiled code. It is part of the record's folder."""
        return self.record.folder / "compiled"

    def is_running(self, server: str) -> bool:
        """Return whether this server runs and its process is alive."""
        if self._deployment is None or self.running != server:
            return False
        return self._deployment.server is None or self._deployment.server.alive

    async def start(self, server: str, model_config: ModelConfig) -> dict[str, float]:
        """Stop the running server and start this one. Return the seconds of the start by phase.

        Raises `ServerFailed`, `InvalidModelConfig`; if it has already failed in this process, without another
        try.
        """
        if server in self._broken:
            raise ServerFailed(f"its server did not start: {self._broken[server]}")
        await self.stop()
        began = time.monotonic()
        try:
            self._deployment = await self._stack.enter_async_context(
                deploy(
                    with_folder(model_config, self.compiled),
                    self.setup.config.serving,
                    log=self.record.folder / "server.log",
                    say=self.status,
                    waiting=self.status,
                )
            )
        except (ServingError, TimeoutError) as error:
            self._broken[server] = first_line(error)
            raise
        except asyncio.CancelledError:
            self._broken[server] = "it took too long"
            raise
        self.running = server
        started = self._deployment.server
        return {**(started.phases if started else {}), "total": time.monotonic() - began}

    async def stop(self) -> None:
        """Stop the running server, if any."""
        self.running, self._deployment = "", None
        await self._stack.aclose()

    def start_s(self) -> float:
        """Return the seconds to allow for a start: 1.5 times the longest measured one, and 30 more."""
        longest_s = max(self.record.facts(step).get("total", 0.0) for step in STARTS)
        return min(1.5 * longest_s + 30, self.longest_start_s) if longest_s else self.longest_start_s

    def needed_s(self, step: Step) -> float:
        """Return the seconds to allow for a step."""
        start_s = self.start_s() if step.server and not self.is_running(step.server) else 0.0
        return min(step.bound_s + start_s, LONGEST_S)

    async def play(self, step: Step, status: Status) -> None:
        """Play one step and keep its result, or the reason of its failure."""
        began, clock, bound_s = time.time(), time.monotonic(), self.needed_s(step)
        outer, self.status = self.status, status
        found: Measurement | None = None
        reason = trace = ""
        try:
            async with asyncio.timeout(bound_s) as limit:
                if step.needs and not self.record.has_succeeded(step.needs):
                    raise InvalidConfig(f"it needs the result of step {step.needs}")
                if step.server and not self.is_running(step.server):
                    await self.start(step.server, step.model_config(self.record, self.setup.model_config))
                found = await step.play(self)
        except FOR_PEOPLE as error:
            reason = first_line(error)
        except Exception as error:
            if limit.expired():
                reason = f"it took longer than its limit of {bound_s:.0f} s"
            else:
                reason, trace = f"{type(error).__name__}: {first_line(error)}", traceback.format_exc()
        finally:
            self.status = outer
        self.record.keep(
            StepRecord(
                step=step.name,
                status="failed" if found is None else "done",
                reason=reason,
                traceback=trace,
                began=began,
                seconds=time.monotonic() - clock,
                measured=found,
            )
        )


async def play_steps(bench: Bench, steps: Sequence[Step], minutes: float, shutdown: Shutdown) -> list[Left]:
    """Play the steps that the record lacks, in order, while the next one fits into the minutes.

    A step that fails is recorded with its reason, and the others follow. The server is stopped at the end,
    whatever the reason.

    Returns the steps that have not succeeded.

    Raises:
        InvalidConfig: the minutes are too short for every remaining step.
        StorageError: a result cannot be written.
    """
    end = time.monotonic() + 60 * minutes
    record = bench.record
    for step in steps:
        if step.skip and not record.is_finished(step.name):
            record.keep(StepRecord(step=step.name, status="skipped", reason=step.skip, began=time.time()))
    tried: set[str] = set()
    try:
        while True:
            write_page(record)
            open_ = [each for each in steps if not record.is_finished(each.name)]
            untried = [each for each in open_ if each.name not in tried]
            chosen = _next(bench, untried, end - time.monotonic())
            if chosen is None:
                break
            tried.add(chosen.name)
            number = f"step {len(steps) - len(open_) + 1} of {len(steps)}, {chosen.name}"
            with shutdown.unit(chosen.name, chosen.name):
                await bench.play(chosen, prefix_status(bench.status, number))
    finally:
        await bench.stop()
    if open_ and not tried:
        first = min(open_, key=bench.needed_s)
        raise InvalidConfig(
            f"--minutes {minutes:g} is too short: the shortest remaining step, {first.name}, may take"
            f" {bench.needed_s(first) / 60:.1f} minutes"
        )
    reasons = {name: step.reason for name, step in record.steps.items()}
    return [Left(each.name, reasons.get(each.name, "not started"), bench.needed_s(each)) for each in open_]


def _next(bench: Bench, steps: Sequence[Step], left_s: float) -> Step | None:
    """Return the first step that fits into the seconds left.

    A step that starts a server comes before all others that need that server to be started.
    """
    for step in steps:
        starting = [each for each in steps if each.starts == step.server]
        first = starting[0] if step.server and starting and not bench.is_running(step.server) else step
        if bench.needed_s(first) <= left_s:
            return first
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text. A server's further lines are also in its log."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def with_folder(model_config: ModelConfig, compiled: Path) -> ModelConfig:
    """Return the model config with a server that keeps compiled code in this folder."""
    folders = {name: str(compiled.resolve() / name.lower()) for name in CACHES}
    server = msgspec.structs.replace(model_config.server, env={**model_config.server.env, **folders})
    return msgspec.structs.replace(model_config, server=server)
