"""The command line: `speedrunner run | sweep | eval | episode | play | show | compare | library | ...`."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from speedrunner.cli.bench import app as bench_app
from speedrunner.cli.command import (
    RunsFolder,
    Trust,
    carry_out,
    key_values,
    plain_console,
    refuse_moved,
)
from speedrunner.cli.compare import compare
from speedrunner.cli.cost import cost
from speedrunner.cli.doctor import doctor
from speedrunner.cli.envs import app as envs_app
from speedrunner.cli.export import export
from speedrunner.cli.forecast import forecast
from speedrunner.cli.init import NotWritten, init
from speedrunner.cli.library import app as library_app
from speedrunner.cli.listing import list_
from speedrunner.cli.methods import app as methods_app
from speedrunner.cli.prepare import prepare
from speedrunner.cli.probe import app as probe_app
from speedrunner.cli.report import report
from speedrunner.cli.serve import serve
from speedrunner.cli.show import show
from speedrunner.cli.status import status
from speedrunner.cli.study import app as study_app
from speedrunner.cli.submit import submit
from speedrunner.cli.verify import verify
from speedrunner.cli.view import view
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, InvalidConfig, TaskConfig
from speedrunner.console import visible
from speedrunner.experiments.grid import grid_of

if TYPE_CHECKING:
    from serving.balance import Balance
    from speedrunner.runs.setup import Setup

KEPT = "; what is recorded stays, the same command goes on"

app = typer.Typer(
    help="LLM agents that learn programmatic skills online, on open models served by vLLM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(library_app, name="library")
app.add_typer(envs_app, name="envs")
app.add_typer(methods_app, name="methods")
app.add_typer(probe_app, name="probe")
app.add_typer(bench_app, name="bench")
app.command("init")(init)
app.command("list")(list_)
app.command("prepare")(prepare)
app.command("doctor")(doctor)
app.command("serve")(serve)
app.command("show")(show)
app.command("submit")(submit)
app.command("status")(status)
app.command("forecast")(forecast)
app.command("export")(export)
app.command("cost")(cost)
app.command("view")(view)
app.command("report")(report)
app.command("compare")(compare)
app.command("verify")(verify)
app.add_typer(study_app, name="study")
refuse_moved(app, "plot", "speedrunner plot", "speedrunner compare RUN")
refuse_moved(app, "tables", "speedrunner tables", "speedrunner report DIR... --out OUT")

Overrides = Annotated[
    list[str] | None,
    key_values(
        "What differs from the defaults (`list keys`): groups (env=babyai method=react model=tiny-random) and"
        " single keys (run.rollouts=20)."
    ),
]


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be played, and how many requests at most.")
]


@app.command()
def run(overrides: Overrides = None, dry_run: DryRun = False) -> None:
    """Play a run: wake, sleep, evaluate. On an existing run's directory it goes on where that stopped.

    Ctrl-C or SIGTERM lets episodes in flight end (in run.drain_s seconds at most; a second one ends at once);
    in a Slurm job, nothing begins that would not end in its time. The same command then goes on. With
    experiment=NAME, the settings choose one run of an experiment.

    Example: speedrunner run env=babyai method=speedrunner model=tiny-random run.rollouts=20
    """
    given = overrides or []
    if not any(each.startswith("experiment=") for each in given):
        _run(compose(given), dry_run)
        return
    grid = grid_of(given)
    asked = [each for each in grid.runs() if each.asked]
    if len(asked) != 1:
        raise InvalidConfig(
            f"{len(asked)} runs of {grid.file} are meant: `speedrunner sweep` plays several; or choose one,"
            f" such as {' '.join(asked[0].overrides)}"
        )
    _run(asked[0].config, dry_run)


@app.command()
def sweep(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] [KEY=VALUE]...",
            help="experiment=NAME (scale=paper, pilot or smoke), or FILE: YAML, a list of runs. Other"
            " settings choose among the runs if some have them (method=asi run.seed=0,1), else hold for all.",
            show_default=False,
        ),
    ],
    folder: RunsFolder = None,
    at_once: Annotated[
        int, typer.Option("--in-flight", min=1, help="Episodes at the same time, over all runs.")
    ] = 64,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="K/N", help="The K-th of N parts of the runs only, as a job has it.", show_default=False
        ),
    ] = None,
    worker_node: Annotated[bool, typer.Option("--worker-node", hidden=True)] = False,
    dry_run: DryRun = False,
) -> None:
    """Play the runs of an experiment, or of a list, side by side on one server for each model.

    What is finished is not played again, also where another experiment has played it. A run that stops leaves
    the others alone; the same command goes on with it.

    Example: speedrunner sweep experiment=main scale=smoke
    """
    from serving.worker_node import serve_part
    from speedrunner.experiments.parts import parsed_part, parts
    from speedrunner.experiments.sweep import members
    from speedrunner.experiments.sweep import sweep as play_all
    from speedrunner.runs.executor import RunStopped

    grid = grid_of(what, folder)
    runs = members(grid.runs(), plays_here=not worker_node)
    own = None if part is None else parsed_part(part)
    if own is not None:
        runs = parts(runs, own.of, at_once)[own.number - 1]
    logs = "" if own is None else f"part{own.number}of{own.of}_"
    if worker_node:  # the job's script gives it the head node's words, so that both serve the same model
        asyncio.run(serve_part(runs[0].setup.services, Path(runs[0].path).parent, logs, typer.echo))
        return
    setups = [each.setup for each in runs]
    _show_messages(setups[0].config)
    if dry_run:
        for each in runs:
            _outline(each.setup, each.run.after)
        return
    command = ["speedrunner", "sweep", *what, *([f"--dir={folder}"] if folder else [])]
    if own is None:
        grid.announce(command, [each.run for each in runs])
    console = plain_console()
    patience_s = max(setup.config.run.drain_s for setup in setups)
    result = carry_out(
        lambda drain: play_all(runs, console, drain, at_once, logs), _say(console), KEPT, patience_s
    )
    begun = [each for each in setups if _was_played(each.config.run.dir)]
    if begun:
        _show_runs(begun, console, result.balances)
    if result.failures:
        lines = [f"{path}: {reason}" for path, reason in result.failures.items()]
        raise RunStopped(f"{len(lines)} of {len(setups)} runs stopped; " + "; ".join(lines))


@app.command(name="eval")
def evaluate(
    source: Annotated[str, typer.Argument(metavar="RUN[:VERSION]", help="A run's directory, and a version.")],
    overrides: Overrides = None,
    trust: Trust = None,
) -> None:
    """Evaluate a stored policy without training, also with another model or environment.

    It is a run of its own, beside the original: RUN-eval-vVERSION-MODEL unless run.dir says otherwise.
    To continue one, name it with run.dir.

    Example: speedrunner eval runs/demo:2 model=tiny-random run.test_episodes=10
    """
    from speedrunner.runs.evaluation import evaluation_config

    _run(evaluation_config(source, overrides or [], trust or []))


@app.command()
def episode(
    overrides: Overrides = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the token ids too.")] = False,
) -> None:
    """Play one episode and print everything: the prompt, the grammar's tag, each answer and reply.

    With run.start_from=RUN[:VERSION], a stored policy plays it. Nothing is recorded.

    Example: speedrunner episode env=babyai task.index=7 model=tiny-random
    """
    from speedrunner.runs.setup import set_up
    from speedrunner.runs.single_episode import show_episode

    config = compose(overrides or [])
    _show_messages(config)
    setup = set_up(config)
    console = plain_console()
    carry_out(lambda drain: show_episode(setup, console, show_ids=ids), _say(plain_console(stderr=True)))


@app.command()
def play(overrides: Overrides = None) -> None:
    """Play an episode yourself, with the actor's primitives and texts. No model is needed.

    Example: speedrunner play env=crafter task.index=7
    """
    from speedrunner.cli.play import play as play_in_terminal

    if sys.stdin.isatty():
        import readline  # noqa: F401 - which lets `input` edit lines and recall them
    config = compose(overrides or [])
    _show_messages(config)
    play_in_terminal(config, lambda text: typer.echo(visible(text)))


@app.command()
def version() -> None:
    """Print the versions that can change a run's results."""
    from speedrunner.runs.versions import versions

    found = versions()
    width = max(map(len, found))
    for name, text in found.items():
        typer.echo(f"{name:{width}}  {text}")


def _run(config: Config, dry_run: bool = False) -> None:
    from speedrunner.runs.run import run as play_run
    from speedrunner.runs.setup import set_up

    _show_messages(config)
    if config.task != TaskConfig():
        single = "`episode`, `play`, `library try` and `envs check`"
        raise InvalidConfig(f"task.name and task.index are for {single}; a run plays its split")
    setup = set_up(config)
    if dry_run:
        _outline(setup)
        return
    console = plain_console()
    balances = carry_out(
        lambda drain: play_run(setup, console, drain), _say(console), KEPT, config.run.drain_s
    )
    _show_runs([setup], console, balances)


def _outline(setup: Setup, after: str | None = None) -> None:
    """Print what a run would do."""
    from speedrunner.runs.outline import outline

    for line in outline(setup, after):
        typer.echo(visible(line))


def _was_played(path: str) -> bool:
    """Whether a process has come as far as to play the run."""
    from speedrunner.store.data import load

    return (Path(path) / "config.yaml").exists() and bool(load(path).processes)


def _show_runs(setups: Sequence[Setup], console: Console, balances: Sequence[Balance] = ()) -> None:
    """Print the checkpoints of runs in one table, their accounts and places."""
    from speedrunner.results.checkpoints import frame_checkpoints
    from speedrunner.results.cost_text import balance_text, checkpoint_table, limit_lines, notes
    from speedrunner.results.ledger import run_costs
    from speedrunner.results.plain_rows import list_rows
    from speedrunner.results.pricing import price_book
    from speedrunner.store.data import load
    from speedrunner.store.processes import process_lines, remarks

    rows, books, processes = {}, [], []
    lines: dict[str, list[str]] = {}
    for setup in setups:  # one after the other, as ledgers are large
        path = setup.config.run.dir
        data = load(path)
        books.append(price_book(data))
        processes += data.processes
        (costs,) = run_costs([data], books[-1:])
        rows[path] = own = list_rows(frame_checkpoints(data, costs))
        lines[path] = [*limit_lines(costs), *process_lines(data.processes)]
        if setup.prices != data.prices:
            lines[path].append(
                "These are the prices that it was played at;"
                f" `speedrunner cost {shlex.quote(path)}` has others."
            )
        if unscored := sum(row["unscored"] for row in own):
            again = "the same command with run.retry_faults=true plays them again"
            lines[path].append(f"{unscored} test episodes ended by a fault: {again}")
    names = [Path(path).name for path in rows]
    only = setups[0].config
    what = f"{only.method.name} on {only.env.name}" if len(setups) == 1 else f"{len(setups)} runs"
    cards = ", ".join(dict.fromkeys(setup.card.name for setup in setups))
    console.print(f"\n{what} with {cards}", style="bold")
    unique = names if len(set(names)) == len(names) else list(rows)
    if len(rows) > 1:  # no name shall take the place of a number
        console.width = max(console.width, 82 + max(map(len, unique)))
    console.print(checkpoint_table(dict(zip(unique, rows.values(), strict=True))))
    console.print(notes([row for each in rows.values() for row in each], books), style="dim", soft_wrap=True)
    for path, told in lines.items():
        for line in told:
            console.print(f"{path}: {line}" if len(setups) > 1 else line, soft_wrap=True)
    for line in (*remarks(processes), *map(balance_text, balances)):
        console.print(line, soft_wrap=True)
    folders = [str(Path(path)) for path in rows]
    if len(folders) > 1:
        folders = list(dict.fromkeys(str(Path(path).parent) for path in rows))
    whose = "The run's" if len(rows) == 1 else "The runs'"
    console.print(f"{whose} files are in {', '.join(folders)}", soft_wrap=True)


def _say(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, soft_wrap=True)


def _show_messages(config: Config) -> None:
    """Let our own messages through from the level that `verbosity` names on; others' warnings as well."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for package in ("serving", "envs", "speedrunner"):
        logging.getLogger(package).setLevel(config.verbosity.upper())


READERS = ("show", "compare", "cost", "report", "view", "status", "export", "library")
"""Commands that only read runs, which may be someone else's."""

UNFIT = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, AssertionError, RecursionError)
"""What a reader of runs raises where records are well-formed and contradict each other."""


def _for_people(error: Exception) -> bool:
    """Whether its text is meant for people; everything else is a bug and shows its traceback."""
    from serving.errors import ServingError
    from speedrunner.experiments.forecast import NothingMeasured
    from speedrunner.hosts.host import HostError
    from speedrunner.optional import NotInstalled
    from speedrunner.results.comparison import CannotCompare
    from speedrunner.runs.drain import TimeTooShort
    from speedrunner.runs.executor import RunStopped
    from speedrunner.runs.setup import SETUP_ERRORS
    from speedrunner.sandbox.settings import SandboxError
    from speedrunner.slurm import SlurmRefused
    from speedrunner.store.files import StorageError

    others = (
        *(CannotCompare, HostError, NothingMeasured, NotInstalled, NotWritten),
        *(RunStopped, SandboxError, ServingError, SlurmRefused, StorageError, TimeTooShort),
    )
    return isinstance(error, SETUP_ERRORS + others)


def explained(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line in which a command's error is told; `None` where it is a bug, and shows its traceback.

    Records of a run that contradict each other can make any step of a reader fail: these are told, too, with
    the place in our code, so that a bug can still be found.
    """
    text = str(error)
    if not _for_people(error):
        if next(iter(arguments), "") not in READERS or not isinstance(error, UNFIT):
            return None
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"records of the run contradict each other ({type(error).__name__}: {error}, at"
            f" {Path(at.filename).name}:{at.lineno}); `speedrunner verify` may find where"
        )
    return visible(f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out a command, by default the process's own. Errors for people are one line and exit status 1.

    What a command writes, runs and caches among it, is its owner's alone.
    """
    os.umask(0o077)
    try:
        app(arguments)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        told = explained(error, sys.argv[1:] if arguments is None else arguments)
        if told is None:
            raise
        print(told, file=sys.stderr)
        sys.exit(1)
