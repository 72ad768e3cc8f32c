"""Play runs, break each once at a random moment, resume it, and check it: `make chaos N=100`.

    python -m tests.chaos --trials 100 [--seed 0] [--jobs 2] [--fault "power cut"] [--out results.jsonl]

A trial is repeatable as far as threads and processes are: `--fault NAME --seed S --trials 1` plays one again.
Its folder stays if it failed. Exit status 1: at least one trial failed.
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

from tests.chaos import trial


@cache
def _size() -> tuple[int, int]:
    """The requests and changes of the disk of an undisturbed run; measured once in each process."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        return trial.measure(folder / "whole")
    finally:
        shutil.rmtree(folder)


def play(name: str, seed: int) -> dict[str, Any]:
    """Play a trial; returns its record."""
    folder, began = Path(tempfile.mkdtemp(prefix="chaos-")), time.monotonic()
    record: dict[str, Any] = {"fault": name, "seed": seed, "failed": None}
    try:
        trial.play(folder / "trial", name, seed, *_size())
    except Exception as error:
        record |= {"failed": f"{type(error).__name__}: {error}"[:2_000], "folder": str(folder)}
        record["traceback"] = traceback.format_exc()[-4_000:]
    else:
        shutil.rmtree(folder)
    return record | {"seconds": round(time.monotonic() - began, 2)}


def table(records: Iterable[dict[str, Any]]) -> str:
    """The trials and failures of each fault, as a Markdown table."""
    trials, failures, seconds = Counter[str](), Counter[str](), defaultdict[str, float](float)
    for each in records:
        trials[each["fault"]] += 1
        failures[each["fault"]] += each["failed"] is not None
        seconds[each["fault"]] += each["seconds"]
    rows = [
        f"| {name} | {trials[name]} | {failures[name]} | {seconds[name] / trials[name]:.1f} |"
        for name in trial.FAULTS
        if trials[name]
    ]
    mean_s = sum(seconds.values()) / max(trials.total(), 1)
    whole = f"| all | {trials.total()} | {failures.total()} | {mean_s:.1f} |"
    return "\n".join(["| fault | trials | failed | seconds each |", "|---|---|---|---|", *rows, whole])


def main() -> int:
    """Play the trials that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fault", choices=[*trial.FAULTS], action="append")
    parser.add_argument("--out", type=Path, help="file that gets one line of JSON for each trial")
    given = parser.parse_args()
    names = given.fault or [*trial.FAULTS]
    records = []
    with ProcessPoolExecutor(given.jobs) as pool:
        seeds = range(given.seed, given.seed + given.trials)
        begun = [pool.submit(play, names[seed % len(names)], seed) for seed in seeds]
        for each in as_completed(begun):
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
