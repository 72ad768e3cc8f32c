"""Measure commands that analyse runs of the paper's size, at one commit and at another one.

    python -m tests.benchmarks.analysis BEFORE [AFTER] [--runs 6] [--rollouts 200]

Prints CPU seconds and peak memory (MB) of each command. Both commits read the same invented runs, which
the checked-out code writes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FRAME = "from speedrunner.results import load_all; load_all({!r}).frame({!r})"
SLEEPS = """
from pathlib import Path
from speedrunner.store.history import History
from speedrunner.store.run_data import RunData
for batch in range(20):  # one more is there at each sleep
    run = RunData(Path({!r}))
    run.batches = lambda: list(range(batch + 1))
    with History(run).files():
        pass
"""
CODE = Path(__file__).parents[2]


def list_commands(runs: list[Path], out: Path) -> dict[str, list[str]]:
    """Return the measured commands, by their names in the table."""
    folder, learnt = str(runs[0].parent), str(next(run for run in runs if "-speedrunner-" in run.name))
    sides = [str(run) for run in runs[:4]]
    program = ["-m", "speedrunner.cli"]
    return {
        "report": [*program, "report", folder, "--out", str(out / "report")],
        "frame of episodes": ["-c", FRAME.format(folder, "episodes")],
        "frame of requests": ["-c", FRAME.format(folder, "requests")],
        "cost of a run": [*program, "cost", learnt],
        "compare four runs": [*program, "compare", *sides],
        "view --static of a run": [*program, "view", learnt, "--static", str(out / "pages")],
        "history of 20 sleeps": ["-c", SLEEPS.format(learnt)],
    }


def measure(tree: Path, command: list[str]) -> tuple[float, float]:
    """Run Python with some arguments on a tree's code, and return CPU seconds and peak memory in MB."""
    paths = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.Popen([sys.executable, *command], cwd=tree, env=paths, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(done.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed in {tree}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure what the analysis of runs takes, at two commits.")
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--rollouts", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write = "from tests.benchmarks.paper_runs import *; import sys; "
        write += "[*write_runs(Path(sys.argv[1]), *map(int, sys.argv[2:]))]"
        sizes = [str(given.runs), str(given.rollouts)]
        subprocess.run([sys.executable, "-c", write, folder / "runs", *sizes], cwd=CODE, check=True)
        runs = sorted((folder / "runs").iterdir(), key=lambda run: "crafter" not in run.name)
        trees = [folder / "before", folder / "after"]
        for tree, commit in zip(trees, (given.before, given.after), strict=True):
            subprocess.run(["git", "worktree", "add", "-q", "--detach", tree, commit], cwd=CODE, check=True)
        try:
            print("| command | before: s | MB | after: s | MB | times |\n|---|---|---|---|---|---|")
            for title in list_commands(runs, folder):
                found = [
                    measure(tree, list_commands(runs, folder / f"{tree.name}-out")[title]) for tree in trees
                ]
                cells = [
                    f"{value:.{digits}f}" for one in found for value, digits in zip(one, (2, 0), strict=True)
                ]
                print(f"| {title} | {' | '.join(cells)} | {found[0][0] / found[1][0]:.1f} |", flush=True)
        finally:
            for tree in trees:
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=CODE, check=True)


if __name__ == "__main__":
    main()
