"""Play runs, break each at random moments, resume it, and check it: `make chaos N=100`.

    python -m tests.chaos --trials 100 [--seed 0] [--jobs 2] [--fault "power cut"] [--out results.jsonl]

A trial has up to `MOST` faults, one after the other, until its run is finished. It is repeatable as far as
threads and processes are: `--seed S --trials 1` plays it again, with the same `--fault`. Its folder stays if
it failed. A series with `--out` continues after the trials that the file has; the table covers all of them.
Exit status 1: at least one trial failed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import psutil

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


def play(names: list[str], seed: int) -> dict[str, Any]:
    """Play a trial; returns its record."""
    size = _size()
    folder, began, cpu = _folder(), time.monotonic(), _cpu_s()
    record: dict[str, Any] = {"seed": seed, "planned": names, "faults": [], "failed": None}
    try:
        faults.play(folder / "trial", names, seed, size, record["faults"])
    except Exception as error:
        record |= {"failed": f"{type(error).__name__}: {error}"[:2_000], "folder": str(folder)}
        record["traceback"] = traceback.format_exc()[-4_000:]
    else:
        shutil.rmtree(folder)
    return record | {"seconds": round(time.monotonic() - began, 2), "cpu": round(_cpu_s() - cpu, 2)}


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of all that has ended below the fork server."""
    ended = psutil.Process(trial.find_fork_server()).cpu_times()
    return time.process_time() + sum(ended[:4])


def table(records: Iterable[dict[str, Any]]) -> str:
    """Return the faults by kind as a Markdown table. A run that ends before a fault has not had it."""
    played, struck, failed = Counter[str](), Counter[str](), Counter[str]()
    count, seconds, cpu = 0, 0.0, 0.0
    for record in records:
        count, seconds, cpu = count + 1, seconds + record["seconds"], cpu + record["cpu"]
        for name, happened in record["faults"]:
            for each in (name, "all"):
                played[each] += 1
                struck[each] += happened
        if record["failed"] is not None:
            for each in (record["faults"][-1][0], "all"):
                failed[each] += 1
    rows = [
        f"| {name} | {played[name]} | {struck[name]} | {failed[name]} |"
        for name in (*faults.FAULTS, "all")
        if played[name]
    ]
    head = ["| fault | tried | happened | failed |", "|---|---|---|---|"]
    each = f"{count} trials: {seconds / max(count, 1):.2f} s and {cpu / max(count, 1):.2f} CPU s each"
    return "\n".join([*head, *rows, "", each])


def main() -> int:
    """Play the trials that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fault", choices=[*faults.FAULTS], action="append")
    parser.add_argument("--out", type=Path, help="file that gets one line of JSON for each trial")
    given = parser.parse_args()
    names = given.fault or [*faults.FAULTS]
    records = []
    if given.out is not None and given.out.exists():
        records = [json.loads(line) for line in given.out.read_text().splitlines()]
    played = {record["seed"] for record in records}
    seeds = [seed for seed in range(given.seed, given.seed + given.trials) if seed not in played]
    with ProcessPoolExecutor(given.jobs) as pool:
        started = [pool.submit(play, plan(names, seed), seed) for seed in seeds]
        for each in as_completed(started):
            record = each.result()
            records.append(record)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if record["failed"] is not None:
                print(f"seed {record['seed']}, {record['faults']}: {record['failed']}", flush=True)
    print(table(records))
    return 1 if any(each["failed"] for each in records) else 0


if __name__ == "__main__":
    sys.exit(main())
