"""One trial: a run, one fault at a random moment, resumption, and what must be true afterwards."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

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
from tests.chaos.disk import Disk, Trigger, operations, surviving
from tests.scripted_engine import DROP, GARBAGE, Answer, Request, ScriptedEngine, abort, call, refuse
from tests.scripted_runs import LEARN, PLANNED, SCHEDULE, check_finished, roomy, script, walker

PATIENCE_S = 180.0
"""Seconds after which a process counts as hanging."""

RESUMPTIONS = 6
"""Most times that a run is resumed after its fault."""

IN_FLIGHT = 3
"""Most requests in flight: two episodes, and a sleep or a prefix."""

INDUCER = (call("execute_code", code="x = len(load_trajectories())"), *LEARN, call("execute_code", code="1"))

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos.client"])


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
    requests: int
    changes: int
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
        environment = {"TMPDIR": str(self.folder / "scratch"), "TRIAL": str(self.folder)}
        client = Client(arguments, self.run, self.folder / "output", environment=environment)
        return replace(client, **changes)

    def start(self, client: Client) -> ForkServerProcess:
        """Start a process of the run."""
        process = _CONTEXT.Process(target=client.main)
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
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(process.pid).children(recursive=True)
        return []

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
        self._check_processes()
        if left := sorted(path.name for path in (self.folder / "scratch").iterdir()):
            raise Broken(f"scratch files are left: {left}")

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

    def _check_processes(self) -> None:
        deadline = time.monotonic() + 60
        while left := [each for each in psutil.process_iter() if self._is_ours(each)]:
            if time.monotonic() > deadline:
                raise Broken(f"processes are left: {[' '.join(each.cmdline())[:80] for each in left]}")
            time.sleep(0.05)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                return False
            return process.environ().get("TRIAL") == str(self.folder)
        except psutil.Error:
            return False

    def at_request(self, act: Callable[[Request], Answer | None]) -> None:
        """Do something at a random request."""
        self.moment = Moment(self.rng.randrange(self.requests), act)

    def trigger(self, effect: Any, **more: Any) -> Trigger:
        """An effect at a random change of the disk."""
        return Trigger(self.rng.randrange(self.changes), effect, **more)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


# The faults. Each plays the run until it has happened, and leaves a run that `Trial.finish` resumes.


def client_killed(trial: Trial) -> dict[str, Any]:
    """SIGKILL to the run's process, before, after or in the middle of a write."""
    trial.kills += 1
    effect = trial.rng.choice(["kill", "kill_after", "torn"])
    trial.play(log=trial.folder / "log", trigger=trial.trigger(effect))
    trial.keep()
    return {}


def power_cut(trial: Trial) -> dict[str, Any]:
    """SIGKILL, and everything is gone that was not on the disk."""
    trial.lost_rows = True
    log, before = trial.folder / "log", Disk()
    trial.play(log=log, trigger=trial.trigger(trial.rng.choice(["kill", "kill_after", "torn"])))
    done, root = operations(log), str(trial.run.resolve())
    whole = surviving(before, done)
    there = {str(path): path.read_bytes() for path in trial.run.rglob("*") if path.is_file()}
    logs = {name for name in there if name.endswith(".log")}
    if (want := {n: c for n, c in whole.files.items() if n not in logs}) != {
        n: c for n, c in there.items() if n not in logs
    }:
        different = {n for n in {*want, *there} - logs if want.get(n) != there.get(n)}
        raise Broken(f"the model of the disk is wrong about {sorted(different)[:5]}")
    seed = trial.rng.randrange(2**32)
    trial.keep(surviving(before, done, least=True))
    if trial.run.exists():
        shutil.rmtree(trial.run)
        surviving(before, done, seed).write(trial.run, root)
    return {}


def _failing_disk(*names: str, lasting: bool) -> Callable[[Trial], dict[str, Any]]:
    def fault(trial: Trial) -> dict[str, Any]:
        trial.kills += 1  # answers that arrive while the disk fails cannot be recorded
        effect = trial.rng.choice(names)
        trial.play(log=trial.folder / "log", trigger=trial.trigger(effect, lasting=lasting))
        trial.keep()
        return {}

    return fault


def _part_killed(chosen: Callable[[psutil.Process], bool]) -> Callable[[Trial], dict[str, Any]]:
    def fault(trial: Trial) -> dict[str, Any]:
        def kill(request: Request) -> None:
            below = [each for each in trial.below(trial.clients[-1]) if chosen(each)]
            if below:
                with suppress(psutil.NoSuchProcess):
                    trial.rng.choice(below).kill()

        trial.at_request(kill)
        trial.play()
        trial.keep()
        return {}

    return fault


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "fork_server_process" in " ".join(process.cmdline())
    return False


def engine_killed(trial: Trial) -> dict[str, Any]:
    """The engine ends at a request, and is back when the run is resumed."""
    trial.lost_rows = True  # requests that were being answered

    def stop(request: Request) -> None:
        threading.Thread(target=trial.engine.stop).start()

    trial.at_request(stop)
    trial.play()
    trial.keep()
    trial.moment = None
    trial.engine.restart()
    return {}


def network_cut(trial: Trial) -> dict[str, Any]:
    """All connections end, and new ones are refused for a moment."""
    trial.lost_rows = True
    pause_s = trial.rng.uniform(0.05, 1.0)

    def cut(request: Request) -> None:
        def work() -> None:
            trial.engine.stop()
            time.sleep(pause_s)
            trial.engine.restart()

        threading.Thread(target=work).start()

    trial.at_request(cut)
    trial.play()
    trial.keep()
    return {}


def bad_answer(trial: Trial) -> dict[str, Any]:
    """An answer is late, truncated, an error, no JSON, or its connection is lost."""
    kind = trial.rng.choice(["late", "truncated", "error", "refused", "garbage", "drop"])
    trial.lost_rows = kind in ("garbage", "drop", "truncated")
    late = threading.Event()

    def answer(request: Request) -> Answer:
        good = script(walker, INDUCER)(request)
        if kind == "late":
            threading.Timer(1.0, late.set).start()
        return {
            "late": replace(good, after=late),
            "truncated": abort(good),
            "error": refuse(500, "internal error"),
            "refused": refuse(404, "no such thing"),
            "garbage": GARBAGE,
            "drop": DROP,
        }[kind]

    trial.at_request(answer)
    trial.play()
    trial.keep()
    return {}


def clock_jump(trial: Trial) -> dict[str, Any]:
    """The wall clock jumps by up to a week, back or forth."""
    week = 7 * 86_400
    trial.play(clock_jump_s=trial.rng.uniform(-week, week), clock_after=trial.rng.randrange(200))
    trial.keep()
    return {}


def two_processes(trial: Trial) -> dict[str, Any]:
    """A second process starts on the same run, and must leave it alone."""
    second: list[ForkServerProcess] = []

    def start(request: Request) -> None:
        process = _CONTEXT.Process(target=replace(trial.client(), output=trial.folder / "second").main)
        process.start()
        second.append(process)
        while (
            psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING
            and not trial.folder.joinpath("second").exists()
        ):
            time.sleep(0.01)

    trial.at_request(start)
    first = trial.play()
    trial.keep()
    for process in second:
        status, said = trial.end(process), (trial.folder / "second").read_text()
        if not (status == 1 and "is in use by" in said) and not (status == 0 and "is finished" in said):
            raise Broken(f"the second process ended with {status}: {said[-300:]}")
    if first != 0:
        raise Broken(f"the first process ended with {first}: {trial.output[-300:]}")
    return {}


def moved(trial: Trial) -> dict[str, Any]:
    """SIGKILL, then the run continues with another path, port, job, machine, umask, locale and time zone."""
    trial.kills += 1
    job = {"SLURM_JOB_ID": str(trial.rng.randrange(1, 10**6)), "SLURM_CLUSTER_NAME": "one"}
    client = trial.client()
    effect = trial.rng.choice(["kill", "kill_after", "torn"])
    trial.play(
        log=trial.folder / "log",
        trigger=trial.trigger(effect),
        environment=client.environment | job,
        machine="one",
    )
    trial.keep()
    elsewhere = trial.folder / "elsewhere" / f"of {trial.rng.randrange(100)} runs"
    elsewhere.mkdir(parents=True)
    if trial.run.exists():
        shutil.move(trial.run, elsewhere / "moved")
    trial.run = elsewhere / "moved"
    again = {"SLURM_JOB_ID": job["SLURM_JOB_ID"], "SLURM_RESTART_COUNT": "1", "SLURM_CLUSTER_NAME": "one"}
    environment = {**client.environment, **again, "LC_ALL": "C", "TZ": "Pacific/Auckland", "LANG": None}
    return {
        "environment": environment,
        "machine": "two",
        "umask": trial.rng.choice([0o077, 0o000, 0o027]),
        "folder": Path("/"),
    }


FAULTS: dict[str, Callable[[Trial], dict[str, Any]]] = {
    "client killed": client_killed,
    "power cut": power_cut,
    "disk full": _failing_disk("ENOSPC", "EDQUOT", lasting=True),
    "disk error": _failing_disk("EIO", lasting=False),
    "read-only disk": _failing_disk("EROFS", lasting=True),
    "worker killed": _part_killed(_is_worker),
    "any child killed": _part_killed(lambda process: True),
    "engine killed": engine_killed,
    "network cut": network_cut,
    "bad answer": bad_answer,
    "clock jump": clock_jump,
    "two processes": two_processes,
    "moved": moved,
}


@contextmanager
def opened(folder: Path, name: str, seed: int, requests: int, changes: int) -> Iterator[Trial]:
    """A trial in a new folder; its processes end with it."""
    model = load_model_config("tiny-random")
    tokenizer = ChatTokenizer(bundled_folder("tiny-random"))
    with ScriptedEngine(tokenizer, (), model=model.name) as engine:
        trial = Trial(folder, engine, random.Random(f"{name} {seed}"), requests, changes)
        try:
            yield trial
        finally:
            for process in trial.clients:
                with suppress(ProcessLookupError):
                    os.kill(process.pid or 0, signal.SIGKILL) if process.exitcode is None else None
                process.join()


def measure(folder: Path) -> tuple[int, int]:
    """Play a run without a fault; returns its requests and its changes of the disk."""
    with opened(folder, "none", 0, 1, 1) as trial:
        count = Moment(-1, lambda request: None)
        trial.moment = count
        log = trial.folder / "log"
        if trial.play(log=log) != 0:
            raise Broken(trial.output)
        trial.check()
        return count.count, sum(each["kind"] != "fsync" for each in operations(log))


def play(folder: Path, name: str, seed: int, requests: int, changes: int) -> None:
    """Play one trial. Raises `Broken` or `AssertionError` if something is not as it must be."""
    with opened(folder, name, seed, requests, changes) as trial:
        trial.finish(**FAULTS[name](trial))
