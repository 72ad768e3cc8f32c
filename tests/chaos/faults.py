"""The faults. Each plays a run until the fault has happened, and leaves a run that the next one resumes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil

from serving.usage import Usage
from speedrunner.store.files import is_leftover
from speedrunner.store.run_data import RunData
from tests.chaos.disk import Disk, Effect, Kind, surviving
from tests.chaos.trial import HELD, INDUCER, Broken, Size, Trial, opened
from tests.chaos.world import DOOM
from tests.scripted_engine import DROP, GARBAGE, Answer, Request, abort, refuse
from tests.scripted_runs import script, walker

Fault = Callable[[Trial], None]

KILLS: tuple[Effect, ...] = ("kill", "kill_after", "torn")
WEEK_S = 7 * 86_400

CALLS = 12
"""Calls of primitives that each worker gets at least in an undisturbed run."""


def _at_operation(*effects: Effect, at: Kind = "change", lasting: bool = False) -> Fault:
    """Return a fault at a random operation on the run's directory."""

    def fault(trial: Trial) -> None:
        # Answers that arrive while the process ends, or the disk fails, cannot be recorded.
        trial.kills += effects != ("jump",)
        jump_s = trial.rng.uniform(-WEEK_S, WEEK_S)
        trial.play(trigger=trial.trigger(trial.rng.choice(effects), at, lasting=lasting, jump_s=jump_s))

    return fault


def power_cut(trial: Trial) -> None:
    """SIGKILL, and everything is gone that was not on the disk."""
    trial.kills += 1
    trial.play(trigger=trial.trigger(trial.rng.choice(KILLS)))
    done, root = trial.operations(), trial.run.resolve()
    there = Disk.read(root).files if root.exists() else {}
    model = surviving(trial.disk, done).files
    names = {name for name in {*model, *there} if not _is_unwatched(Path(name))}
    if different := sorted(name for name in names if model.get(name) != there.get(name)):
        raise Broken(f"the model of the disk is wrong about {different[:5]}")
    before = sum_usage(trial.run)
    left = surviving(trial.disk, done, trial.rng.randrange(2**32))
    if trial.run.exists():
        shutil.rmtree(trial.run)
        left.write(trial.run, str(root))
    trial.lost += before - sum_usage(trial.run)
    trial.replace_disk(Disk.read(root))  # without files whose folder is lost
    trial.kept = trial.safe


def _is_unwatched(path: Path) -> bool:
    """Return whether a file is a log, or in the copies of the history that code reads: no record."""
    return path.suffix == ".log" or any(is_leftover(folder) for folder in path.parents)


def child_killed(trial: Trial) -> None:
    """A process below the run is killed, while it waits for the engine or in a call."""

    def kill(request: Request) -> None:
        with suppress(psutil.NoSuchProcess, IndexError):
            trial.rng.choice(trial.below(trial.clients[-1])).kill()
            trial.strike()

    trial.at_request(kill)
    trial.play()


def _killed_in_call(victim: str) -> Fault:
    """Return a fault that kills a worker, or what runs its skill, in the middle of a primitive."""

    def fault(trial: Trial) -> None:
        number = 1 + trial.choose(CALLS)
        trial.play(environment={DOOM: f"{number}:{victim}:{trial.struck}"})

    return fault


def engine_killed(trial: Trial) -> None:
    """The engine ends at a request, and is back when the run is resumed."""
    trial.kills += 1

    def stop(request: Request) -> None:
        trial.strike()
        threading.Thread(target=trial.engine.stop).start()

    trial.at_request(stop)
    trial.play()
    trial.engine.restart()


def network_cut(trial: Trial) -> None:
    """All connections end, and new ones are refused for a moment."""
    trial.kills += 1
    pause_s = trial.rng.uniform(0.05, 1.0)

    def work() -> None:
        trial.engine.stop()
        time.sleep(pause_s)
        trial.engine.restart()

    thread = threading.Thread(target=work)

    def cut(request: Request) -> None:
        trial.strike()
        thread.start()

    trial.at_request(cut)
    trial.play()
    if trial.has_struck:
        thread.join()


def bad_answer(trial: Trial) -> None:
    """An answer is late, sent twice, truncated, an error, no JSON, or its connection is lost."""
    kind = trial.rng.choice(["late", "twice", "truncated", "error", "refused", "garbage", "drop"])
    trial.kills += 1
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


def two_processes(trial: Trial) -> None:
    """A second process starts on the same run, and must leave it alone."""
    second: list[ForkServerProcess] = []
    said = trial.folder / "second"

    def start(request: Request) -> None:
        trial.strike()
        second.append(trial.start(trial.client(output=said)))

    trial.at_request(start)
    first = trial.play()
    for process in second:
        status, text = trial.end(process), said.read_text()
        if not (status == 1 and HELD in text) and not (status == 0 and "is finished" in text):
            raise Broken(f"the second process ended with {status}: {text[-300:]}")
    if second and first != 0:
        raise Broken(f"the first process ended with {first}: {trial.output[-300:]}")


def moved(trial: Trial) -> None:
    """SIGKILL; then the run continues elsewhere: see `_move`."""
    _play_on_one_node(trial, {})
    place = trial.folder / f"elsewhere{len(trial.clients)}" / f"of {trial.rng.randrange(100)} runs"
    place.mkdir(parents=True)
    if trial.run.exists():
        shutil.move(trial.run, place / "moved")
    trial.run = place / "moved"
    trial.replace_disk(Disk.read(trial.run.resolve()))
    _move(trial, {})


def requeued(trial: Trial) -> None:
    """SIGKILL of a Slurm job's process; then Slurm starts the job again, or another job takes over."""
    end = {"SLURM_CLUSTER_NAME": "one", "SLURM_JOB_END_TIME": str(int(time.time()) + 86_400)}
    job, other = (str(number) for number in trial.rng.sample(range(1, 10**6), 2))
    _play_on_one_node(trial, end | {"SLURM_JOB_ID": job})
    again = {"SLURM_JOB_ID": job, "SLURM_RESTART_COUNT": str(len(trial.clients))}
    _move(trial, end | trial.rng.choice([again, {"SLURM_JOB_ID": other}]))


def _play_on_one_node(trial: Trial, environment: dict[str, str]) -> None:
    trial.kills += 1
    trigger = trial.trigger(trial.rng.choice(KILLS))
    trial.play(trigger=trigger, environment=environment, machine=f"node{len(trial.clients)}")


def _move(trial: Trial, environment: dict[str, str]) -> None:
    """Let the run continue on another node, behind another port, in the shell of another user."""
    trial.engine.restart(elsewhere=True)
    names = {"USER": "other", "LOGNAME": "other", "LC_ALL": "C", "TZ": "Pacific/Auckland", "LANG": None}
    trial.here = {
        "machine": f"node{len(trial.clients)}",
        "umask": trial.rng.choice([0o077, 0o000, 0o027]),
        "folder": Path("/"),
        "environment": names | environment,
    }


FAULTS: dict[str, Fault] = {
    "client killed": _at_operation(*KILLS),
    "client stopped": _at_operation("stop"),
    "power cut": power_cut,
    "disk full": _at_operation("ENOSPC", "EDQUOT", lasting=True),
    "disk error": _at_operation("EIO"),
    "sync error": _at_operation("EIO", at="sync"),
    "read error": _at_operation("EIO", at="read"),
    "read-only disk": _at_operation("EROFS", lasting=True),
    "worker killed in a call": _killed_in_call("worker"),
    "sandbox killed in a call": _killed_in_call("sandbox"),
    "any child killed": child_killed,
    "engine killed": engine_killed,
    "network cut": network_cut,
    "bad answer": bad_answer,
    "clock jump": _at_operation("jump"),
    "two processes": two_processes,
    "moved": moved,
    "requeued": requeued,
}


ENDING = (
    *("client killed", "client stopped", "power cut", "disk full", "disk error", "sync error", "read error"),
    *("read-only disk", "engine killed", "moved", "requeued"),
)
"""Faults after which the run has usually not been finished."""


def play(folder: Path, names: Sequence[str], seed: int, size: Size, played: list[list[Any]]) -> None:
    """Play one trial: a run with one fault after the other, as long as it is not finished.

    Args:
        played: gets the name of each fault that is played, and whether it has happened.

    Raises:
        Broken, AssertionError: something is not as it must be, after the last of `played`.
    """
    with opened(folder, seed, size) as trial:
        for name in names:
            trial.begin()
            played.append([name, False])
            FAULTS[name](trial)
            played[-1][1] = trial.has_struck
            trial.keep()
            if trial.left == 0:
                break
        trial.begin()
        trial.finish()


def sum_usage(run: Path) -> Usage:
    """Return the tokens of all rows of a run's ledger."""
    return sum((row.usage for row in RunData(run).ledger if row.usage is not None), Usage())
