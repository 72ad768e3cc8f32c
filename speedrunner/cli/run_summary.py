"""Output of commands that play runs, meanwhile and after."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serving.meter import Reconciliation
from speedrunner.cli.command import carry_out
from speedrunner.cli.output import SafeConsole, say
from speedrunner.config.schema import Config
from speedrunner.plain.console import count_of
from speedrunner.results.cost_text import checkpoint_lines, reconciliation_line
from speedrunner.results.frames import frame_sleeps
from speedrunner.results.inference import CONFIDENCE, estimate_score
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

if TYPE_CHECKING:
    from speedrunner.results.run_result import RunResult


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
    """Print the checkpoints of runs in one table, their costs, token reconciliation and folders; also the
    score unless they learn."""
    from speedrunner.results.run_result import frame_run, note_silent_sleeps  # pandas takes long to import

    rows, notes, results = {}, set[str](), []
    lines: dict[str, list[str]] = {}
    for setup in setups:  # one at a time, since ledgers are large
        path = setup.config.run.dir
        data = load(path)
        notes.update(caveats([data]))
        costs = run_costs(data, price_book(data))
        rows[path] = own = list_rows(frame_checkpoints(data, costs))
        results.append(frame_run(data))
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
    if not learns:
        say(*_describe_score(results))


def _describe_score(results: Sequence[RunResult]) -> list[str]:
    """Return a line with the mean score of one condition over the seeds that have finished; none for several,
    or for one episode."""
    from speedrunner.results.conditions import group_runs

    condition, *others = group_runs(results)[0]
    if others or not condition.points:
        return []
    values = condition.values(condition.points[-1], "score")
    found = estimate_score(values)
    if found is None or found.count < 2:
        return []
    ends, span = found.ends, ", {:.0%} interval {:.2f} to {:.2f}"
    around = span.format(CONFIDENCE, *ends) if ends else ""
    return [f"score {found.mean:.2f}{around} ({count_of(len(values), 'seed')}, {found.count} episodes)"]
