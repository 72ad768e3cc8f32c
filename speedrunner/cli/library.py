"""`speedrunner library show | diff | graph | check | try`: skill libraries for people."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from speedrunner.console import visible
from speedrunner.library.skill_source import InvalidSkill
from speedrunner.sandbox.child.values import valid_text
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory

if TYPE_CHECKING:
    from speedrunner.runs.skill_call import Tried

app = typer.Typer(help="Look at skill libraries, and try modules of skills.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)]
Version = Annotated[
    int | None, typer.Argument(metavar="[VERSION]", help="By default the newest.", show_default=False)
]
Module = Annotated[Path, typer.Argument(metavar="FILE.py", help="A module of skills.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="env=babyai, model=tiny and others.", show_default=False),
]


@app.command()
def show(run: Run, version: Version = None) -> None:
    """Print the source of a library version, with who may call each skill and which sleeps wrote it."""
    from speedrunner.library.text import source_text

    _, policy = _policy(run, version)
    typer.echo(visible(source_text(policy)))


@app.command()
def diff(run: Run, version: Version = None) -> None:
    """Print what a library version changed of the one before it."""
    from speedrunner.library.text import diff_lines

    directory, policy = _policy(run, version)
    before = directory.policies.load(policy.version - 1) if policy.version else Policy(version=0)
    for line in list(diff_lines(before, policy)) or [f"v{policy.version:04d} changed no skill"]:
        typer.echo(visible(line))


@app.command()
def graph(run: Run, version: Version = None) -> None:
    """Print which skills call which, and which primitives."""
    import envs
    from speedrunner.config.schema import from_yaml
    from speedrunner.library.library import Library
    from speedrunner.library.text import graph_lines

    directory, policy = _policy(run, version)
    config = from_yaml(directory.config() or "")
    env = envs.make(config.env.name, **config.env.options)
    try:
        lines = list(graph_lines(Library(env.primitives, policy.skills, policy.preamble)))
    except InvalidSkill as error:
        raise _invalid(directory, policy.version, error) from error
    finally:
        env.close()
    for line in lines:
        typer.echo(visible(line))


@app.command()
def check(file: Module, overrides: Overrides = None) -> None:
    """Validate a module as an edit of the library would be, and print each error.

    Functions whose names begin with an underscore are taken for private ones. The calls of the others are
    checked for the model's tokenizer; no server is started. Classes are loaded in the sandbox.

    Example: speedrunner library check skills.py env=babyai model=tiny
    """
    from serving.cards import prepare
    from serving.tokens.formats import FORMATS
    from serving.tokens.tokenizer import ChatTokenizer
    from serving.tokens.tool_check import ToolCheck
    from serving.tokens.tools import ToolSpec
    from speedrunner.config.compose import compose
    from speedrunner.library.library import Library
    from speedrunner.library.loading import check_loading
    from speedrunner.runs.setup import set_up

    setup = set_up(compose(overrides or []))
    card = setup.card

    def accept(tool: ToolSpec) -> None:
        """A hosted model's tokenizer is not known."""

    checked = accept
    if card.route == "tokens" and card.tool_format is not None:
        folder = prepare(card, lambda line: typer.echo(line, err=True))
        tokenizer = ChatTokenizer(folder, card.revision)
        tool_format = FORMATS[card.tool_format]
        checked = ToolCheck(tokenizer, tool_format, card.role("actor").string_tokens).check
    try:
        library = Library.of_module(setup.env.primitives, _text(file), checked)
        asyncio.run(check_loading(library, setup.sandbox()))
    except InvalidSkill as error:
        for line in str(error).splitlines():
            typer.echo(visible(f"{file}: {line}"))
        raise typer.Exit(1) from None
    count = f"{len(library.skills)} skills, {len(library.public)} of them public"
    typer.echo(visible(f"{file} is valid: {count}, for {setup.config.env.name} and {card.name}"))


@app.command(name="try")
def try_(
    file: Module,
    skill: Annotated[str, typer.Argument(help="The function to call.", show_default=False)],
    overrides: Overrides = None,
    arguments: Annotated[str, typer.Option(metavar="JSON", help="Its arguments by name.")] = "{}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one object: result, error, calls, actions, done, score.")
    ] = False,
) -> None:
    """Call one skill of a module in the sandbox, on a fresh episode, and print everything that it ran.

    The call may take `sandbox.call_wall_s` seconds, by default 60. The exit status is 1 when it was refused,
    failed or was killed.

    Example: speedrunner library try skills.py explore env=babyai task.index=7 --arguments '{"steps": 5}'
    """
    from speedrunner.agents.trajectory_text import call_lines
    from speedrunner.config.compose import compose
    from speedrunner.config.task import chosen_task
    from speedrunner.runs.setup import set_up
    from speedrunner.runs.skill_call import Tried, try_skill

    try:
        source = _text(file)
        setup = set_up(compose(overrides or []))
        tried = asyncio.run(try_skill(setup, chosen_task(setup.config), source, skill, arguments))
    except InvalidSkill as error:
        tried = Tried(error=f"{file}: {error}")
    except Exception as error:  # told as it would be without --json, too
        if as_json:
            typer.echo(_json(Tried(error=str(error) or type(error).__name__)))
        raise
    if as_json:
        typer.echo(_json(tried))
    else:
        lines = call_lines(tried.calls) if tried.calls else (tried.error or "").splitlines()
        for line in lines:
            typer.echo(visible(line))
        if tried.calls:
            state = "the episode is over" if tried.done else "the episode goes on"
            typer.echo(f"{tried.actions} actions, score {tried.score:g}, {state}")
    if tried.error is not None:
        raise typer.Exit(1)


def _json(tried: Tried) -> str:
    """The object of `try --json`; what it was given on the command line may be no text."""
    if tried.error is not None:
        tried.error = valid_text(tried.error)
    return msgspec.json.encode(tried).decode()


def _policy(run: Path, version: int | None) -> tuple[RunDirectory, Policy]:
    """A stored policy. Raises `RunDirectoryError`."""
    from speedrunner.runs.stored_policy import find_policy

    directory, found = find_policy(str(run) if version is None else f"{run}:{version}")
    return directory, directory.policies.load(found)


def _invalid(directory: RunDirectory, version: int, error: Exception) -> InvalidPolicy:
    reason = str(error) or type(error).__name__
    return InvalidPolicy(f"v{version:04d} of {directory.path} is no valid library: {reason}")


def _text(file: Path) -> str:
    """The text of a file. Raises `InvalidSkill`, which says why there is none, without the file's name."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSkill(f"is no text in UTF-8: {error.reason}") from None
    except OSError as error:
        raise InvalidSkill(f"cannot be read: {error.strerror}") from None
