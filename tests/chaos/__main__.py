"""Play runs, break each at random moments, resume it, and check it: `make chaos N=100`.

    python -m tests.chaos --trials 100 [--seed 0] [--jobs 2] [--fault "power cut"]

A trial has up to `MOST` faults, one after the other, until its run is finished. It is repeatable as far as
threads and processes are: `--seed S --trials 1` plays it again, with the same `--fault`. Its folder stays if
it failed. Exit status 1: at least one trial failed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from tests.chaos import faults, trial

MEMORY = Path("/dev/shm")
"""Where trials are played if it is there: a disk's `fsync` takes longer than the rest of a trial."""

MOST = 4
"""Most faults of a trial."""


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="chaos-", dir=MEMORY if MEMORY.is_dir() else None))


@cache
def _size() -> trial.Size:
    """Measure an undisturbed run, once in each process."""
    folder = _folder()
    try:
        return trial.measure(folder / "whole")
    finally:
        shutil.rmtree(folder)


def plan(names: Sequence[str], seed: int) -> list[str]:
    """Return the faults of a trial. Trials with consecutive seeds begin with each fault in turn."""
    rng = random.Random(f"faults of {seed}")
    found = [names[seed % len(names)], *rng.choices(names, k=rng.randrange(MOST))]
    return sorted(found, key=lambda name: name not in faults.ENDING)


def play(names: list[str], seed: int) -> tuple[list[list[Any]], str]:
    """Play a trial; returns its faults, each with whether it has happened, and why the trial failed."""
    size, folder = _size(), _folder()
    played: list[list[Any]] = []
    try:
        faults.play(folder / "trial", names, seed, size, played)
    except Exception:
        return played, f"seed {seed} in {folder}: {traceback.format_exc()}"
    shutil.rmtree(folder)
    return played, ""


def main() -> int:
    """Play the trials that the command line asks for, and print the faults by kind as a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fault", choices=[*faults.FAULTS], action="append")
    given = parser.parse_args()
    names = given.fault or [*faults.FAULTS]
    tried, happened, failed = Counter[str](), Counter[str](), Counter[str]()
    with ProcessPoolExecutor(given.jobs) as pool:
        seeds = range(given.seed, given.seed + given.trials)
        for each in as_completed([pool.submit(play, plan(names, seed), seed) for seed in seeds]):
            played, problem = each.result()
            for name, has_struck in played:
                tried.update([name, "all"])
                happened.update([name, "all"] * has_struck)
            if problem:
                failed.update([played[-1][0], "all"])
                print(problem, flush=True)
    print("| fault | tried | happened | failed |\n|---|---|---|---|")
    for name in (*faults.FAULTS, "all"):
        if tried[name]:
            print(f"| {name} | {tried[name]} | {happened[name]} | {failed[name]} |")
    return int(failed.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
