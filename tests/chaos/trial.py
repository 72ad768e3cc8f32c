"""A run that a fault breaks: its engine, its processes, its resumption, and what must be true afterwards."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
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
from speedrunner.store.files import is_leftover
from speedrunner.store.run_data import load
from tests.bundled_models import bundled_folder
from tests.chaos.client import Client
from tests.chaos.disk import (
    STRUCK,
    Disk,
    Effect,
    Kind,
    Trigger,
    count_operations,
    operations,
    surviving,
)
from tests.processes import HANGS_S
from tests.scripted_engine import Answer, Request, ScriptedEngine, call
from tests.scripted_runs import LEARN, PLANNED, SCHEDULE, check_finished, roomy, script, walker

ENDING_S = HANGS_S
"""Seconds that processes below a run may take to end."""

RESUMPTIONS = 6
"""Most times that a run is resumed after its fault."""

IN_FLIGHT = 3
"""Most requests in flight: two episodes, and a sleep or a prefix."""

HELD = "is in use by"
"""What a process prints if another one owns the run."""

EPISODES = ("trajectories/", "evaluations/")
"""Folders of episodes."""

Records = dict[str, list[bytes]]
"""Lines by file."""

WORLD = "env=tests.chaos.world:DoomedCorridor"

INDUCER = (call("execute_code", code="x = len(load_trajectories())"), *LEARN, call("execute_code", code="1"))

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.chaos.preload"])


class Broken(Exception):
    """Something that must be true is not."""


@dataclass
class RequestHook:
    """Calls a function when the engine gets its request of a number, and again until it has struck."""

    number: int
    act: Callable[[Request], Answer | None]
    struck: Callable[[], bool]
    count: int = 0

    def __call__(self, request: Request) -> Answer | None:
        if not request.tools:
            return None
        self.count += 1
        return self.act(request) if self.count > self.number and not self.struck() else None


class Size(NamedTuple):
    """How much an undisturbed run does: requests, and operations on its directory of each kind."""

    requests: int
    operations: dict[Kind, Counter[str]]


@dataclass
class Trial:
    """A run's folder, its engine, and the processes that play it.

    Attributes:
        clients: its processes so far.
        here: what the processes have differently since the run moved: arguments of `client`.
        kept: lines of records that were there after the last fault, by file.
        safe: those of them that no power cut may take.
        disk: what is certainly on the disk; the operations of `logs` came later.
        kills: how often answers that arrived could not be recorded.
        lost: tokens of the rows that power cuts took from the ledger.
    """

    folder: Path
    engine: ScriptedEngine
    rng: random.Random
    size: Size
    clients: list[ForkServerProcess] = field(default_factory=list)
    here: dict[str, Any] = field(default_factory=dict)
    kept: Records = field(default_factory=dict)
    safe: Records = field(default_factory=dict)
    disk: Disk = field(default_factory=Disk)
    logs: list[Path] = field(default_factory=list)
    kills: int = 0
    lost: Usage = field(default_factory=Usage)
    hook: RequestHook | None = None

    def __post_init__(self) -> None:
        self.run = self.folder / "runs" / "run"
        self.run.parent.mkdir(parents=True)
        (self.folder / "scratch").mkdir()
        answer = script(walker, INDUCER)

        def answers(request: Request) -> Answer:
            found = self.hook(request) if self.hook is not None else None
            return found or answer(request)

        self.engine.script = answers

    def client(self, *, environment: Mapping[str, str | None] | None = None, **changes: Any) -> Client:
        """The command that plays or resumes the run."""
        file = self.folder / "model.yaml"
        file.write_text(model_text())
        arguments = (
            *("run", WORLD, *SCHEDULE[1:], f"run.dir={self.run}", f"model.name={file}"),
            *(f"serving.url={self.engine.endpoint}", "serving.outage_timeout_s=2", "run.drain_s=1"),
        )
        programs = f"{_programs(self.folder)}:{os.environ['PATH']}"
        variables: dict[str, str | None] = {"TMPDIR": str(self.folder / "scratch"), "PATH": programs}
        variables |= {**self.here.get("environment", {}), **(environment or {})}
        client = Client(arguments, self.run, self.folder / "output", environment=variables)
        return replace(client, **{**self.here, "environment": variables, **changes})

    def start(self, client: Client) -> ForkServerProcess:
        """Start a process of the run, and log what it does to the disk."""
        if client.log is None:
            self.logs.append(self.folder / f"log{len(self.clients)}")
            client = replace(client, log=self.logs[-1])
        process = CONTEXT.Process(target=client.main)
        process.start()
        self.clients.append(process)
        return process

    def end(self, process: ForkServerProcess) -> int:
        """Wait for a process; returns its exit status."""
        process.join(HANGS_S)
        if process.exitcode is None:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            raise Broken(f"a process hangs: {self.output[-400:]}")
        return process.exitcode

    def play(self, **changes: Any) -> int:
        """Play or resume the run in one process; returns its exit status.

        Another node's lock expires some time after its process was killed.
        """
        while True:
            before = len(self.output)
            status = self.end(self.start(self.client(**changes)))
            if status == 0 or "machine" not in self.here or HELD not in self.output[before:]:
                return status
            time.sleep(0.1)

    @property
    def output(self) -> str:
        """What all its processes have printed."""
        file = self.folder / "output"
        return file.read_text(errors="replace") if file.exists() else ""

    def below(self, process: ForkServerProcess) -> list[psutil.Process]:
        """The processes that a process of the run has started, and theirs."""
        return list_children(process.pid or 0)

    def operations(self) -> list[dict[str, Any]]:
        """What its processes have done to the disk since all of it was certainly there."""
        return [each for log in self.logs for each in operations(log)]

    def replace_disk(self, disk: Disk) -> None:
        """From now on, this is certainly on the disk."""
        self.disk = disk
        self.logs.clear()

    def keep(self) -> None:
        """Check that no record is gone that was there before, and note those that are there now."""
        there = list_records(Disk.read(self.run.resolve()), self.run)
        check_kept(self.kept, there)
        self.kept = there
        self.safe = list_records(surviving(self.disk, self.operations(), least=True), self.run)
        check_safe(there, self.safe)

    @property
    def left(self) -> float:
        """The share of the run that is still to be played, by its episodes."""
        played = sum(len(lines) for name, lines in self.kept.items() if name.startswith(EPISODES))
        return 1 - played / len(PLANNED)

    def finish(self) -> None:
        """Resume until the run is finished, and check it."""
        for _ in range(RESUMPTIONS):
            if self.play() == 0:
                break
        else:
            raise Broken(f"it does not finish: {self.output[-600:]}")
        self.check()

    def check(self) -> None:
        """Check everything that must be true of a finished run. Raises `Broken`, `AssertionError`."""
        check_finished(self.run, PLANNED, sleeps=2)
        data = load(self.run)
        check_kept(self.kept, list_records(Disk.read(self.run.resolve()), self.run))
        check_order(
            [row.labels["episode"] for row in data.requests if not row.wasted and "episode" in row.labels]
        )
        self._check_ledger(data.ledger)
        if left := [path.name for path in self.run.rglob("*") if is_leftover(path)]:
            raise Broken(f"temporary files are left: {left}")
        self.check_processes()
        if left := sorted(path.name for path in (self.folder / "scratch").iterdir()):
            raise Broken(f"scratch files are left: {left}")
        if "Traceback" in self.output:
            raise Broken(f"a traceback is printed: {self.output[-1_000:]}")

    def _check_ledger(self, ledger: list[Any]) -> None:
        usages = [row.usage for row in ledger if row.usage is not None]
        known = sum(usages, Usage()) + self.lost
        most = sum((row.at_most for row in ledger if row.usage is None and row.at_most), Usage())
        prompt, generated = self.engine.prompt - known.prompt, self.engine.generated - known.completion
        unknown = self.kills * IN_FLIGHT
        prompts = most.prompt + unknown * max(each.prompt for each in usages)
        answers = most.completion + unknown * max(each.completion for each in usages)
        if not (0 <= prompt <= prompts and 0 <= generated <= answers):
            raise Broken(
                f"the engine counted {prompt} prompt and {generated} generated tokens more than the ledger,"
                f" which explains {prompts} and {answers}"
            )

    def check_processes(self) -> None:
        """Wait until no process of the run is left. Raises `Broken`."""
        deadline = time.monotonic() + ENDING_S
        while left := [each for each in list_children(find_fork_server()) if _is_running(each)]:
            if time.monotonic() > deadline:
                raise Broken(f"processes are left: {[' '.join(each.cmdline())[:80] for each in left]}")
            time.sleep(0.02)

    def begin(self) -> None:
        """Prepare for the next fault."""
        self.hook = None
        self.struck.unlink(missing_ok=True)

    @property
    def struck(self) -> Path:
        """A file that is there once the fault has happened."""
        return self.folder / STRUCK

    @property
    def has_struck(self) -> bool:
        """Whether the fault has happened; a run may end before its random moment."""
        return self.struck.exists()

    def strike(self) -> None:
        """Note that the fault happens."""
        self.struck.touch()

    def at_request(self, act: Callable[[Request], Answer | None]) -> None:
        """Do something at a random request; `act` calls `strike`, and is called again if it did not."""
        # Each episode that is left has at least one request; the first ones of a run have many.
        left = round(self.left * len(PLANNED)) if self.kept else self.size.requests
        self.hook = RequestHook(self.rng.randrange(max(left, 1)), act, lambda: self.has_struck)

    def trigger(self, effect: Effect, at: Kind = "change", **more: Any) -> Trigger:
        """An effect at a random operation. Of a new run, every other one is drawn from those of a random
        name, so that rare operations are as likely as frequent ones."""
        counts, name = self.size.operations[at], None
        if not self.kept and self.rng.random() < 0.5:
            name = self.rng.choice([*counts])
        number = self.choose(counts.total() if name is None else counts[name])
        return Trigger(number, effect, at=at, name=name, **more)

    def choose(self, count: int) -> int:
        """Draw one of the things that the rest of the run does, if the whole run does `count`."""
        return self.rng.randrange(max(int(count * self.left), 1))


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


def list_records(disk: Disk, run: Path) -> Records:
    """Return the complete lines of each file of records on a disk, and the files of each policy."""
    found, root = Records(), f"{run.resolve()}/"
    for path, content in disk.files.items():
        name = path.removeprefix(root)
        if any(is_leftover(part) for part in Path(name).parents):
            continue
        if name.endswith(".jsonl") and name != "sleep.jsonl":
            found[name] = [line for line in content.split(b"\n")[:-1] if _is_json(line)]
        elif re.fullmatch(r"policies/v\d+/[^/]+", name):
            found[name] = [content]
    return found


def check_kept(before: Records, after: Records) -> None:
    """Check that records are still there, in their order. Raises `Broken`."""
    for name, lines in before.items():
        if after.get(name, [])[: len(lines)] != lines:
            gone = [line[:80] for line in lines if line not in after.get(name, [])]
            raise Broken(f"{name} has lost or changed {gone or 'the order of its lines'}")


def check_order(keys: list[str]) -> None:
    """Check that each sleep was played after all episodes before it, so that it has learned from them.

    Args:
        keys: the episode or sleep of each request, in the order of the ledger.
    """
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    for sleep in (1, 2):
        start = min(places[f"sleep/{sleep:04d}"])
        late = [key for key, own in places.items() if _precedes(key, sleep) and max(own) > start]
        late += [key for key, own in places.items() if _follows(key, sleep) and min(own) < start]
        if late:
            raise Broken(f"sleep {sleep} was played out of order with {late}")


def check_safe(there: Records, safe: Records) -> None:
    """Check that records on which others rely would survive any power cut. Raises `Broken`."""

    def read(records: Records, *names: str) -> list[Any]:
        return [json.loads(line) for name in records if name.startswith(names) for line in records[name]]

    played = {each["episode"]: each for each in read(safe, *EPISODES)}
    if unsafe := {row["episode"] for row in read(there, "episodes.jsonl")} - {*played}:
        raise Broken(f"a power cut could take {sorted(unsafe)}, which have rows")
    known = {row["request"] for row in read(safe, "requests.jsonl")}
    if unsafe := [
        key for key, each in played.items() if not {turn["request"] for turn in each["turns"]} <= known
    ]:
        raise Broken(f"a power cut could take ledger rows of {unsafe}")
    batches = {int(key[-4:]) // 2 for key in _learned(there)}
    if missing := {f"policies/v{batch:04d}/library.json" for batch in batches} - {*safe}:
        raise Broken(f"a power cut could take {sorted(missing)}, which have been used")


def _learned(records: Records) -> list[str]:
    """Return the training episodes that were played with a policy."""
    rows = [json.loads(line) for line in records.get("episodes.jsonl", [])]
    return [row["episode"] for row in rows if row["episode"].startswith("train/")]


def _precedes(key: str, sleep: int) -> bool:
    kind, _, number = key.partition("/")
    return kind == "train" and int(number) < 2 * sleep


def _follows(key: str, sleep: int) -> bool:
    kind, _, number = key.partition("/")
    if kind == "train":
        return int(number) >= 2 * sleep
    return kind == "test" and int(number.partition("/")[0]) >= 2 * sleep


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@cache
def model_text() -> str:
    """Return the model config of the trials."""
    model = roomy(load_model_config("tiny-random"), path=bundled_folder("tiny-random"))
    return yaml.safe_dump(msgspec.to_builtins(model))


@cache
def _tokenizer() -> ChatTokenizer:
    return ChatTokenizer(bundled_folder("tiny-random"))


@contextmanager
def opened(folder: Path, seed: int, size: Size) -> Iterator[Trial]:
    """A trial in a new folder; its processes end with it."""
    with ScriptedEngine(_tokenizer(), (), model="tiny-random") as engine:
        trial = Trial(folder, engine, random.Random(seed), size)
        try:
            yield trial
        finally:
            for process in trial.clients:
                with suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGKILL) if process.exitcode is None else None
                process.join()


def measure(folder: Path) -> Size:
    """Play a run without a fault; returns what it does."""
    with opened(folder, 0, Size(1, {})) as trial:
        trial.hook = RequestHook(0, lambda request: None, lambda: False)
        if trial.play() != 0:
            raise Broken(trial.output)
        trial.check()
        return Size(trial.hook.count, count_operations(trial.logs[0], trial.run))
