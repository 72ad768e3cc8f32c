"""Play runs, break each once at a random moment, resume it, and check it: `make chaos N=100`.

    python -m tests.chaos --trials 100 [--seed 0] [--jobs 2] [--fault "power cut"] [--out results.jsonl]

A trial is repeatable as far as threads and processes are: `--fault NAME --seed S --trials 1` plays one again.
Its folder stays if it failed. A series with `--out` continues after the trials that the file has; the table
covers all of them. Exit status 1: at least one trial failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from tests.chaos import faults, trial

MEMORY = Path("/dev/shm")
"""Where trials are played if it is there: a disk's `fsync` takes longer than the rest of a trial."""


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


def play(name: str, seed: int) -> dict[str, Any]:
    """Play a trial; returns its record."""
    size = _size()
    folder, began = _folder(), time.monotonic()
    record: dict[str, Any] = {"fault": name, "seed": seed, "struck": True, "failed": None}
    try:
        record["struck"] = faults.play(folder / "trial", name, seed, size)
    except Exception as error:
        record |= {"failed": f"{type(error).__name__}: {error}"[:2_000], "folder": str(folder)}
        record["traceback"] = traceback.format_exc()[-4_000:]
    else:
        shutil.rmtree(folder)
    return record | {"seconds": round(time.monotonic() - began, 2)}


def table(records: Iterable[dict[str, Any]]) -> str:
    """The trials and failures of each fault, as a Markdown table; few runs end before their fault happens."""
    trials, struck, seconds = Counter[str](), Counter[str](), Counter[str]()
    failed = defaultdict[str, list[int]](list)
    for record in records:
        for name in (record["fault"], "all"):
            trials[name] += 1
            struck[name] += record["struck"]
            seconds[name] += record["seconds"]
            if record["failed"] is not None:
                failed[name].append(record["seed"])
    rows = [
        f"| {name} | {trials[name]} | {struck[name]} | {len(failed[name])} |"
        f" {seconds[name] / trials[name]:.1f} | {', '.join(map(str, sorted(failed[name])))} |"
        for name in (*faults.FAULTS, "all")
        if trials[name]
    ]
    head = [
        "| fault | trials | happened | failed | seconds each | seeds that failed |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


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
    played = {(record["fault"], record["seed"]) for record in records}
    seeds = range(given.seed, given.seed + given.trials)
    trials = [(names[seed % len(names)], seed) for seed in seeds]
    with ProcessPoolExecutor(given.jobs) as pool:
        started = [pool.submit(play, *each) for each in trials if each not in played]
        for each in as_completed(started):
            record = each.result()
            records.append(record)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if record["failed"] is not None:
                print(f"{record['fault']}, seed {record['seed']}: {record['failed']}", flush=True)
    print(table(records))
    return 1 if any(each["failed"] for each in records) else 0


if __name__ == "__main__":
    sys.exit(main())
