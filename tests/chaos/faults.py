"""The faults. Each plays a run until the fault has happened, and leaves a run that `Trial.finish` resumes.

A fault returns what changes for the processes that resume the run: arguments of `Trial.client`.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.disk import Disk, operations, surviving
from tests.chaos.trial import INDUCER, Broken, Size, Trial, opened
from tests.scripted_engine import DROP, GARBAGE, Answer, Request, abort, refuse
from tests.scripted_runs import script, walker

Fault = Callable[[Trial], dict[str, Any]]


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


def _failing_disk(
    *names: str, lasting: bool = False, syncs: bool = False
) -> Callable[[Trial], dict[str, Any]]:
    def fault(trial: Trial) -> dict[str, Any]:
        trial.kills += 1  # answers that arrive while the disk fails cannot be recorded
        effect = trial.rng.choice(names)
        trial.play(log=trial.folder / "log", trigger=trial.trigger(effect, lasting=lasting, syncs=syncs))
        trial.keep()
        return {}

    return fault


def _part_killed(chosen: Callable[[psutil.Process], bool]) -> Fault:
    def fault(trial: Trial) -> dict[str, Any]:
        def kill(request: Request) -> None:
            below = [each for each in trial.below(trial.clients[-1]) if chosen(each)]
            with suppress(psutil.NoSuchProcess, IndexError):
                trial.rng.choice(below).kill()
                trial.strike()

        trial.at_request(kill)
        trial.play()
        trial.keep()
        return {}

    return fault


def _runs(program: str) -> Callable[[psutil.Process], bool]:
    """Return a condition for processes whose command line has this word."""

    def chosen(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return program in " ".join(process.cmdline())
        return False

    return chosen


def engine_killed(trial: Trial) -> dict[str, Any]:
    """The engine ends at a request, and is back when the run is resumed."""
    trial.lost_rows = True  # requests that were being answered

    def stop(request: Request) -> None:
        trial.strike()
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
        trial.strike()

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
    """An answer is late, sent twice, truncated, an error, no JSON, or its connection is lost."""
    kind = trial.rng.choice(["late", "twice", "truncated", "error", "refused", "garbage", "drop"])
    trial.lost_rows = kind in ("garbage", "drop", "truncated")
    late = threading.Event()

    def answer(request: Request) -> Answer:
        trial.strike()
        good = script(walker, INDUCER)(request)
        if kind == "late":
            threading.Timer(1.0, late.set).start()
        return {
            "late": replace(good, after=late),
            "twice": replace(good, fault="twice"),
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
    trial.play(clock_jump_s=trial.rng.uniform(-week, week), clock_after=trial.rng.randrange(60))
    trial.keep()
    return {}


def two_processes(trial: Trial) -> dict[str, Any]:
    """A second process starts on the same run, and must leave it alone."""
    second: list[ForkServerProcess] = []
    said = trial.folder / "second"

    def start(request: Request) -> None:
        trial.strike()
        second.append(trial.start(trial.client(output=said)))

    trial.at_request(start)
    first = trial.play()
    trial.keep()
    for process in second:
        status, text = trial.end(process), said.read_text()
        if not (status == 1 and "is in use by" in text) and not (status == 0 and "is finished" in text):
            raise Broken(f"the second process ended with {status}: {text[-300:]}")
    if first != 0:
        raise Broken(f"the first process ended with {first}: {trial.output[-300:]}")
    return {}


def moved(trial: Trial) -> dict[str, Any]:
    """SIGKILL; then the run continues elsewhere: see `_elsewhere`."""
    changes = _play_on_one_node(trial, {})
    place = trial.folder / "elsewhere" / f"of {trial.rng.randrange(100)} runs"
    place.mkdir(parents=True)
    if trial.run.exists():
        shutil.move(trial.run, place / "moved")
    trial.run = place / "moved"
    return {**changes, "environment": _elsewhere(trial)}


def requeued(trial: Trial) -> dict[str, Any]:
    """SIGKILL of a Slurm job's process; then Slurm starts the job again, or another job takes over."""
    end = {"SLURM_CLUSTER_NAME": "one", "SLURM_JOB_END_TIME": str(int(time.time()) + 86_400)}
    job, other = (str(number) for number in trial.rng.sample(range(1, 10**6), 2))
    changes = _play_on_one_node(trial, end | {"SLURM_JOB_ID": job})
    again = {"SLURM_JOB_ID": job, "SLURM_RESTART_COUNT": "1"}
    now = trial.rng.choice([again, {"SLURM_JOB_ID": other}])
    return {**changes, "environment": _elsewhere(trial) | end | now}


def _play_on_one_node(trial: Trial, environment: dict[str, str]) -> dict[str, Any]:
    """Play until a SIGKILL; returns what the processes on another node have differently."""
    trial.kills += 1
    trial.play(
        log=trial.folder / "log",
        trigger=trial.trigger(trial.rng.choice(["kill", "kill_after", "torn"])),
        environment=trial.client().environment | environment,
        machine="one",
    )
    trial.keep()
    trial.engine.restart(elsewhere=True)
    return {"machine": "two", "umask": trial.rng.choice([0o077, 0o000, 0o027]), "folder": Path("/")}


def _elsewhere(trial: Trial) -> dict[str, str | None]:
    """Return the environment of another user's shell: locale, time zone, names."""
    names = {"USER": "other", "LOGNAME": "other", "LC_ALL": "C", "TZ": "Pacific/Auckland", "LANG": None}
    return {**trial.client().environment, **names}


FAULTS: dict[str, Fault] = {
    "client killed": client_killed,
    "power cut": power_cut,
    "disk full": _failing_disk("ENOSPC", "EDQUOT", lasting=True),
    "disk error": _failing_disk("EIO"),
    "sync error": _failing_disk("EIO", syncs=True),
    "read-only disk": _failing_disk("EROFS", lasting=True),
    "worker killed": _part_killed(_runs("fork_server_process")),
    "sandbox killed": _part_killed(_runs("child.main")),
    "any child killed": _part_killed(lambda process: True),
    "engine killed": engine_killed,
    "network cut": network_cut,
    "bad answer": bad_answer,
    "clock jump": clock_jump,
    "two processes": two_processes,
    "moved": moved,
    "requeued": requeued,
}


def play(folder: Path, name: str, seed: int, size: Size) -> bool:
    """Play one trial; returns whether its fault has happened.

    Raises `Broken` or `AssertionError` if something is not as it must be.
    """
    with opened(folder, name, seed, size) as trial:
        trial.finish(**FAULTS[name](trial))
        return trial.has_struck
