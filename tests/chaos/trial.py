"""A run that a fault breaks: its engine, its processes, its resumption, and what must be true afterwards."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import yaml

from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Usage
from speedrunner.store.checksums import find_changed
from speedrunner.store.files import is_leftover
from speedrunner.store.run_data import load
from tests.bundled_models import bundled_folder
from tests.chaos.client import Client
from tests.chaos.disk import STRUCK, Disk, Trigger, operations
from tests.scripted_engine import Answer, Request, ScriptedEngine, call
from tests.scripted_runs import LEARN, PLANNED, SCHEDULE, check_finished, roomy, script, walker

PATIENCE_S = 900.0
"""Seconds after which a process counts as hanging."""

ENDING_S = 60.0
"""Seconds that processes below a run may take to end."""

RESUMPTIONS = 6
"""Most times that a run is resumed after its fault."""

IN_FLIGHT = 3
"""Most requests in flight: two episodes, and a sleep or a prefix."""

INDUCER = (call("execute_code", code="x = len(load_trajectories())"), *LEARN, call("execute_code", code="1"))

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.chaos.preload"])


class Broken(Exception):
    """Something that must be true is not."""


@dataclass
class Moment:
    """Calls a function once, when the engine gets its request of a number."""

    number: int
    act: Callable[[Request], Answer | None]
    count: int = 0

    def __call__(self, request: Request) -> Answer | None:
        if not request.tools:
            return None
        self.count += 1
        return self.act(request) if self.count - 1 == self.number else None


class Size(NamedTuple):
    """How much an undisturbed run does: requests, changes of the disk, and calls of `fsync`."""

    requests: int
    changes: int
    syncs: int


@dataclass
class Trial:
    """A run's folder, its engine, and the processes that play it.

    Attributes:
        kept: lines of episodes that were safe on the disk when the fault had happened, by file.
        kills: how often answers that arrived could not be recorded.
        lost_rows: whether the ledger may lack more rows of requests that the engine counted.
    """

    folder: Path
    engine: ScriptedEngine
    rng: random.Random
    size: Size
    clients: list[ForkServerProcess] = field(default_factory=list)
    kept: dict[str, list[bytes]] = field(default_factory=dict)
    kills: int = 0
    lost_rows: bool = False
    moment: Moment | None = None

    def __post_init__(self) -> None:
        self.run = self.folder / "runs" / "run"
        self.run.parent.mkdir(parents=True)
        (self.folder / "scratch").mkdir()
        answer = script(walker, INDUCER)

        def answers(request: Request) -> Answer:
            found = self.moment(request) if self.moment is not None else None
            return found or answer(request)

        self.engine.script = answers

    def client(self, **changes: Any) -> Client:
        """The command that plays or resumes the run."""
        model = roomy(load_model_config("tiny-random"), path=bundled_folder("tiny-random"))
        file = self.folder / "model.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(model)))
        arguments = (
            *("run", *SCHEDULE, f"run.dir={self.run}", f"model.name={file}"),
            *(f"serving.url={self.engine.endpoint}", "run.drain_s=1"),
        )
        programs = f"{_programs(self.folder)}:{os.environ['PATH']}"
        environment = {"TMPDIR": str(self.folder / "scratch"), "PATH": programs}
        client = Client(arguments, self.run, self.folder / "output", environment=environment)
        return replace(client, **changes)

    def start(self, client: Client) -> ForkServerProcess:
        """Start a process of the run."""
        process = CONTEXT.Process(target=client.main)
        process.start()
        self.clients.append(process)
        return process

    def end(self, process: ForkServerProcess) -> int:
        """Wait for a process; returns its exit status."""
        process.join(PATIENCE_S)
        if process.exitcode is None:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            raise Broken(f"a process hangs: {self.output[-400:]}")
        return process.exitcode

    def play(self, **changes: Any) -> int:
        """Play or resume the run in one process; returns its exit status."""
        return self.end(self.start(self.client(**changes)))

    @property
    def output(self) -> str:
        """What all its processes have printed."""
        file = self.folder / "output"
        return file.read_text(errors="replace") if file.exists() else ""

    def below(self, process: ForkServerProcess) -> list[psutil.Process]:
        """The processes that a process of the run has started, and theirs."""
        return list_children(process.pid or 0)

    def keep(self, disk: Disk | None = None) -> None:
        """Note which episodes are on the disk now; they must be there at the end, unchanged."""
        files = {} if disk is None else {os.path.relpath(k, self.run): v for k, v in disk.files.items()}
        if disk is None and self.run.exists():
            files = {
                str(path.relative_to(self.run)): path.read_bytes() for path in self.run.glob("*/*.jsonl")
            }
        for name, content in files.items():
            if name.startswith(("trajectories/", "evaluations/")):
                self.kept[name] = [line for line in content.split(b"\n")[:-1] if _is_json(line)]

    def finish(self, **changes: Any) -> None:
        """Resume until the run is finished, and check it."""
        for _ in range(RESUMPTIONS):
            if self.play(**changes) == 0:
                break
        else:
            raise Broken(f"it does not finish: {self.output[-600:]}")
        self.check()

    def check(self) -> None:
        """Check everything that must be true of a finished run. Raises `Broken`, `AssertionError`."""
        check_finished(self.run, PLANNED, sleeps=2)
        data = load(self.run)
        for name, lines in self.kept.items():
            there = (self.run / name).read_bytes().split(b"\n")
            if gone := [line[:80] for line in lines if line not in there]:
                raise Broken(f"{name} lost {gone}")
        if changed := [*find_changed(self.run, data.state.checksums)]:
            raise Broken(f"checksums: {changed}")
        if not self.lost_rows:
            self._check_ledger(data.ledger)
        if left := [path.name for path in self.run.rglob("*") if is_leftover(path)]:
            raise Broken(f"temporary files are left: {left}")
        self.check_processes()
        if left := sorted(path.name for path in (self.folder / "scratch").iterdir()):
            raise Broken(f"scratch files are left: {left}")
        if "Traceback" in self.output:
            raise Broken(f"a traceback is printed: {self.output[-1_000:]}")

    def _check_ledger(self, ledger: list[Any]) -> None:
        known = sum((row.usage for row in ledger if row.usage is not None), Usage())
        most = sum((row.at_most for row in ledger if row.usage is None and row.at_most), Usage())
        prompt, generated = self.engine.prompt - known.prompt, self.engine.generated - known.completion
        longest = max((row.usage.prompt for row in ledger if row.usage is not None), default=0)
        room = most.prompt + self.kills * IN_FLIGHT * longest
        if not (0 <= prompt <= room and generated >= 0):
            raise Broken(
                f"the engine counted {prompt} prompt and {generated} generated tokens more than the ledger,"
                f" which explains {room}"
            )

    def check_processes(self) -> None:
        """Wait until no process of the run is left. Raises `Broken`."""
        deadline = time.monotonic() + ENDING_S
        while left := [each for each in list_children(find_fork_server()) if _is_running(each)]:
            if time.monotonic() > deadline:
                raise Broken(f"processes are left: {[' '.join(each.cmdline())[:80] for each in left]}")
            time.sleep(0.02)

    @property
    def has_struck(self) -> bool:
        """Whether the fault has happened; a run may end before its random moment."""
        return (self.folder / STRUCK).exists()

    def strike(self) -> None:
        """Note that the fault happens."""
        (self.folder / STRUCK).touch()

    def at_request(self, act: Callable[[Request], Answer | None]) -> None:
        """Do something at a random request; `act` calls `strike`."""
        self.moment = Moment(self.rng.randrange(self.size.requests), act)

    def trigger(self, effect: Any, *, syncs: bool = False, lasting: bool = False) -> Trigger:
        """An effect at a random change of the disk, or at a random `fsync`."""
        number = self.rng.randrange(self.size.syncs if syncs else self.size.changes)
        return Trigger(number, effect, lasting, syncs)


def find_fork_server() -> int:
    """Return the process id of the parent of all processes of trials, and of their orphans."""
    return forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined,no-any-return]


def list_children(pid: int) -> list[psutil.Process]:
    """Return the processes below a process."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _programs(folder: Path) -> Path:
    """Return a folder with a `squeue` that knows no job, as minutes after a job's end."""
    program = folder / "bin" / "squeue"
    if not program.exists():
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
        program.chmod(0o700)
    return program.parent


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@contextmanager
def opened(folder: Path, name: str, seed: int, size: Size) -> Iterator[Trial]:
    """A trial in a new folder; its processes end with it."""
    model = load_model_config("tiny-random")
    tokenizer = ChatTokenizer(bundled_folder("tiny-random"))
    with ScriptedEngine(tokenizer, (), model=model.name) as engine:
        trial = Trial(folder, engine, random.Random(f"{name} {seed}"), size)
        try:
            yield trial
        finally:
            for process in trial.clients:
                with suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGKILL) if process.exitcode is None else None
                process.join()


def measure(folder: Path) -> Size:
    """Play a run without a fault; returns what it does."""
    with opened(folder, "none", 0, Size(1, 1, 1)) as trial:
        count = Moment(-1, lambda request: None)
        trial.moment = count
        log = trial.folder / "log"
        if trial.play(log=log) != 0:
            raise Broken(trial.output)
        trial.check()
        kinds = [operation["kind"] for operation in operations(log)]
        syncs = kinds.count("fsync")
        return Size(count.count, len(kinds) - syncs, syncs)
