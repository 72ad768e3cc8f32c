"""Measure commands that analyse runs of the paper's size, at one commit and at another one.

    python -m tests.benchmarks.analysis BEFORE [AFTER] [--runs 6] [--rollouts 200]

Prints CPU seconds and peak memory (MB) of each command. Each commit reads the same invented runs, which it
writes in its own format.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WRITE = """
import sys; from tests.benchmarks.paper_runs import *
[*write_runs(Path(sys.argv[1]), *map(int, sys.argv[2:]))]
"""
FRAME = "from speedrunner.results import load_all; load_all({!r}).frame({!r})"
SLEEPS = """
import sys
from pathlib import Path
from speedrunner.store.history import History
from speedrunner.store.run_data import RunData
batches = RunData(Path({0!r})).batches()
for batch in batches:  # one more is there at each sleep
    run = RunData(Path({0!r}))
    run.batches = lambda: batches[: batch + 1]
    History(run, copies=Path(sys.argv[1])).files()
"""
ROOT = Path(__file__).parents[2]


def list_commands(runs: Path, out: Path) -> dict[str, list[str]]:
    """Return the measured commands, by their names in the table."""
    crafter, program = sorted(map(str, runs.glob("crafter-*"))), ["-m", "speedrunner.cli"]
    learnt = next(run for run in crafter if "-speedrunner-" in run)
    return {
        "report": [*program, "report", str(runs), "--out", str(out / "report")],
        "frame of episodes": ["-c", FRAME.format(str(runs), "episodes")],
        "frame of requests": ["-c", FRAME.format(str(runs), "requests")],
        "cost of a run": [*program, "cost", learnt],
        "compare four runs": [*program, "compare", *crafter[:4]],
        "view --static of a run": [*program, "view", learnt, "--static", str(out / "pages")],
        "history at each sleep of a run": ["-c", SLEEPS.format(learnt), str(out / "copies")],
    }


def measure(tree: Path, command: list[str]) -> tuple[float, float]:
    """Run Python with some arguments on a tree's code, and return CPU seconds and peak memory in MB."""
    paths = {**os.environ, "PYTHONPATH": str(tree)}
    started = subprocess.Popen([sys.executable, *command], cwd=tree, env=paths, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed in {tree}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure what the analysis of runs takes, at two commits.")
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--runs", default="6")
    parser.add_argument("--rollouts", default="200")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        trees = [Path(name, "before"), Path(name, "after")]
        for tree, commit in zip(trees, (given.before, given.after), strict=True):
            subprocess.run(["git", "worktree", "add", "-q", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            for tree in trees:
                measure(tree, ["-c", WRITE, str(tree / "runs/paper"), given.runs, given.rollouts])
            print("| command | before: s | MB | after: s | MB | times |\n|---|---|---|---|---|---|")
            commands = [list_commands(tree / "runs/paper", tree / "out") for tree in trees]
            for title in commands[0]:
                found = [measure(tree, of_tree[title]) for tree, of_tree in zip(trees, commands, strict=True)]
                cells = " | ".join(f"{seconds:.2f} | {mb:.0f}" for seconds, mb in found)
                print(f"| {title} | {cells} | {found[0][0] / found[1][0]:.1f} |", flush=True)
        finally:
            for tree in trees:
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
