"""Output of commands that play runs, meanwhile and after."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from serving.meter import Reconciliation
from speedrunner.cli.command import carry_out
from speedrunner.cli.output import SafeConsole, say
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import Config
from speedrunner.results.cost_text import checkpoint_lines, reconciliation_line
from speedrunner.results.frames import frame_sleeps
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import price_book
from speedrunner.results.writing import list_rows
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import Setup
from speedrunner.store.process_notes import caveats, process_lines
from speedrunner.store.run_data import load
from speedrunner.store.stored_run import RunFiles


def configure_logging(config: Config) -> None:
    """Show SpeedRunner's messages from the level of `verbosity`, and warnings of other packages."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for package in ("serving", "envs", "speedrunner"):
        logging.getLogger(package).setLevel(config.verbosity.upper())


def play_and_print(
    runs: Sequence[PlannedRun], at_once: int | None = None, log_prefix: str | None = None
) -> None:
    """Play runs, and print their results. Raises `RunStopped` if a run stopped, and the errors of
    `play_runs`."""
    console = SafeConsole()
    patience_s = max(run.setup.config.run.drain_s for run in runs)
    result = carry_out(
        lambda shutdown: play_runs(runs, console, shutdown, at_once, log_prefix),
        console.say,
        "; finished work is recorded. Rerun the same command to resume",
        patience_s,
    )
    if played := [run.setup for run in runs if RunFiles(Path(run.path)).processes.exists()]:
        print_runs(played, console, result.reconciliations)
    if result.failures:
        lines = [f"{path}: {reason}" for path, reason in result.failures.items()]
        raise RunStopped(f"{len(lines)} of {len(runs)} runs stopped; " + "; ".join(lines))


def print_runs(
    setups: Sequence[Setup], console: SafeConsole, reconciliations: Sequence[Reconciliation]
) -> None:
    """Print the checkpoints of runs in one table, their costs, token reconciliation and folders."""
    from speedrunner.results.run_result import note_silent_sleeps  # pandas takes long to import

    rows, notes = {}, set[str]()
    lines: dict[str, list[str]] = {}
    scores: list[float] = []
    for setup in setups:  # one at a time, since ledgers are large
        path = setup.config.run.dir
        data = load(path)
        notes.update(caveats([data]))
        costs = run_costs(data, price_book(data))
        rows[path] = own = list_rows(frame_checkpoints(data, costs))
        last = max((row["checkpoint"] for row in own if row["complete"]), default=None)
        tests = [row for row in data.rows if row.phase == "test" and row.checkpoint == last]
        scores += [row.score for row in tests if row.score is not None]
        lines[path] = process_lines(data.processes) + note_silent_sleeps(frame_sleeps(data, costs))
        if unscored := sum(row["unscored"] for row in own):
            again = "rerun the same command with run.retry_faults=true to play them again"
            lines[path].append(f"{unscored} test episodes ended by an infrastructure error: {again}")
    only = setups[0].config
    what = f"{only.method.name} on {only.env.name}" if len(setups) == 1 else f"{len(setups)} runs"
    model_configs = ", ".join(dict.fromkeys(setup.model_config.name for setup in setups))
    console.print(f"\n{what} with {model_configs}", style="bold")
    names = [Path(path).name for path in rows]
    unique = names if len(set(names)) == len(names) else list(rows)
    say("", *checkpoint_lines(dict(zip(unique, rows.values(), strict=True))), "")
    for path, own_lines in lines.items():
        for line in own_lines:
            console.say(f"{path}: {line}" if len(setups) > 1 else line)
    for line in (*sorted(notes), *map(reconciliation_line, reconciliations)):
        console.say(line)
    folders = [str(Path(path)) for path in rows]
    if len(folders) > 1:
        folders = list(dict.fromkeys(str(Path(path).parent) for path in rows))
    console.say("Notes on these numbers: speedrunner compare RUN --all")
    whose = "The run's" if len(rows) == 1 else "The runs'"
    console.say(f"{whose} files are in {', '.join(folders)}")
    learns = any(setup.method.trains and setup.config.run.rollouts for setup in setups)
    conditions = {identify_condition(setup.config) for setup in setups}
    if len(scores) > 1 and not learns and len(conditions) == 1:
        error = stdev(scores) / len(scores) ** 0.5
        console.say(f"score {fmean(scores):.2f} ± {error:.2f} ({len(scores)} episodes)")
