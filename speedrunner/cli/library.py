"""`speedrunner library show | diff | graph | stats | blame | check | try`: skill libraries for people."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from envs import Primitive
from serving.weights import prepare
from speedrunner.agents.reading import call_lines
from speedrunner.cli.command import AsJson, Trust, key_values
from speedrunner.config.compose import GROUPS, compose
from speedrunner.config.named import chosen_task
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.console import json_text, visible
from speedrunner.library.definition import Definition, read_text
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.library.text import compared_lines, diff_lines, graph_lines, source_text
from speedrunner.runs.stored_policy import find_policy
from speedrunner.sandbox.child.values import valid_text
from speedrunner.store.files import StorageError, read_given, reason
from speedrunner.store.policies import MODULE_BYTES, InvalidPolicy

if TYPE_CHECKING:
    from speedrunner.runs.skill_call import SkillCall
    from speedrunner.store.data import RunData

app = typer.Typer(help="Look at skill libraries, and try modules of skills.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)]
Version = Annotated[
    int | None, typer.Argument(metavar="[VERSION]", help="By default the newest.", show_default=False)
]
Module = Annotated[Path, typer.Argument(metavar="FILE.py", help="A module of skills.", show_default=False)]
Overrides = Annotated[list[str] | None, key_values("env=babyai, model=tiny-random and others.")]


@app.command()
def show(run: Run, version: Version = None) -> None:
    """Print the source of a library version, with who may call each skill and which sleeps wrote it.

    Notes follow where the method keeps some.
    """
    directory, found = _find(run, version)
    typer.echo(visible(source_text(*_learnt(directory, found))))


@app.command()
def diff(
    run: Annotated[str, typer.Argument(metavar="RUN[:A]", help="A version, by default the newest.")],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN][:B]", help="A version of another run, or of the same one (:B).", show_default=False
        ),
    ] = None,
) -> None:
    """Print what differs between two versions of libraries and notes: of one run, or of two.

    One version alone is compared with the one before it; `diff RUN 2` is short for `diff RUN:2`.

    Examples: speedrunner library diff runs/demo:2; diff runs/demo:1 :3; diff runs/demo:3 runs/other
    """
    if other is not None and other.isdecimal() and not Path(other).exists():
        run, other = f"{run}:{other}", None
    directory, found = find_policy(run)
    if other is None:
        before, after = (directory, max(found - 1, 0)), (directory, found)
    else:
        before = directory, found
        after = find_policy(f"{directory.path}{other}" if other.startswith(":") else other)
    names = f"v{before[1]:04d}", f"v{after[1]:04d}"
    if before[0].path != after[0].path:
        names = f"{before[0].path}:{names[0]}", f"{after[0].path}:{names[1]}"
    none = f"{names[1]} changed nothing" if other is None else f"{names[0]} and {names[1]} are the same"
    old, new = (compared_lines(*_learnt(*each)) for each in (before, after))
    for line in list(diff_lines(old, new, names)) or [none]:
        typer.echo(visible(line))


@app.command()
def graph(run: Run, version: Version = None, trust: Trust = None) -> None:
    """Print which skills call which, and which primitives."""
    from speedrunner.runs.stored_setup import stored_env

    directory, found = _find(run, version)
    env = stored_env(directory, trust or [])
    env.close()
    library, _ = _learnt(directory, found, env.primitives)
    for line in graph_lines(library):
        typer.echo(visible(line))


@app.command()
def stats(
    source: Annotated[
        str, typer.Argument(metavar="FILE.py|RUN[:VERSION]", help="A module of skills, or a run's library.")
    ],
    as_json: AsJson = False,
) -> None:
    """Print a library's size, call graph and complexity (paper, Appendix H), and its share about combat.

    Examples: speedrunner library stats runs/demo:2; stats skills.py --json
    """
    from speedrunner.results.libraries import library_statistics

    if Path(source).is_file() or source.endswith(".py"):
        try:
            definitions: Sequence[Definition] = read_text(_text(Path(source)))
        except InvalidSkill as error:
            raise StorageError(f"{source}: {error}") from None
    else:
        definitions = _learnt(*find_policy(source))[0].definitions
    found = library_statistics(definitions)
    if as_json:
        typer.echo(json_text(found))
        return
    for name, value in msgspec.structs.asdict(found).items():
        typer.echo(f"{name:11} {'-' if value is None else f'{value:.4g}'}")


@app.command()
def blame(run: Run) -> None:
    """Print each skill's history: which sleep made or changed it, after which episodes, and how it fared.

    Calls are those of all finished episodes, held-out ones too; the score is the mean of the episodes in
    which the actor called it.
    """
    from speedrunner.results.skills import blame_lines
    from speedrunner.store.data import load
    from speedrunner.store.processes import remarks

    data = load(run)
    for line in (*blame_lines(data), *remarks(data.processes)):
        typer.echo(visible(line))


@app.command()
def check(file: Module, overrides: Overrides = None) -> None:
    """Validate a module as an edit of the library would be, and print each error.

    Functions whose names begin with an underscore are taken for private ones. The calls of the others are
    checked for the model's tokenizer; no server is started. Classes are loaded in the sandbox.

    Example: speedrunner library check skills.py env=babyai model=tiny-random
    """
    from serving.tokens.formats import FORMATS
    from serving.tokens.tokenizer import ChatTokenizer
    from serving.tokens.tool_check import ToolCheck
    from speedrunner.runs.setup import set_up
    from speedrunner.sandbox.code_session import load_failure

    setup = set_up(compose(overrides or []))
    card = setup.card
    library = Library(setup.env.primitives, load=partial(load_failure, setup.config.sandbox.limits))
    # A hosted model's tokenizer is not known.
    if card.route == "tokens" and card.tool_format is not None:
        folder = prepare(card, lambda line: typer.echo(line, err=True))
        tokenizer = ChatTokenizer(folder, card.revision)
        tool_check = ToolCheck(tokenizer, FORMATS[card.tool_format], card.role("actor").string_tokens)
        library = replace(library, check=tool_check.check)
    try:
        library = library.write(_text(file), sleep=0, limit=MODULE_BYTES)
        asyncio.run(library.check_loading())
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
    from speedrunner.runs.setup import set_up
    from speedrunner.runs.skill_call import SkillCall, call_skill

    try:
        source = _text(file)
        setup = set_up(_composed(overrides or [], skill))
        call = asyncio.run(call_skill(setup, chosen_task(setup.config), source, skill, arguments))
    except InvalidSkill as error:
        call = SkillCall(error=f"{file}: {error}")
    except Exception as error:  # told as it would be without --json, too
        if as_json:
            typer.echo(_json(SkillCall(error=str(error) or type(error).__name__)))
        raise
    if as_json:
        typer.echo(_json(call))
    else:
        lines = call_lines(msgspec.to_builtins(call.calls)) if call.calls else (call.error or "").splitlines()
        for line in lines:
            typer.echo(visible(line))
        if call.calls:
            state = "the episode is over" if call.done else "the episode goes on"
            typer.echo(f"{call.actions} actions, score {call.score:g}, {state}")
    if call.error is not None:
        raise typer.Exit(1)


def _composed(overrides: list[str], skill: str) -> Config:
    """`compose`, whose error also says how a skill is given its own arguments."""
    try:
        return compose(overrides)
    except InvalidConfig as error:
        for key, _, value in (each.partition("=") for each in overrides):
            if key not in {*GROUPS, *Config.__struct_fields__} and key.isidentifier():
                how = f"{skill} is given its own arguments by --arguments '{{\"{key}\": {value}}}'"
                raise InvalidConfig(f"{error}; {how}") from None
        raise


def _json(call: SkillCall) -> str:
    """The object of `try --json`; what it was given on the command line may be no text."""
    if call.error is not None:
        call.error = valid_text(call.error)
    return json_text(call)


def _find(run: Path, version: int | None) -> tuple[RunData, int]:
    """A stored version. Raises `RunDirectoryError`."""
    return find_policy(str(run) if version is None else f"{run}:{version}")


def _learnt(
    directory: RunData, version: int, primitives: tuple[Primitive, ...] | None = None
) -> tuple[Library, str]:
    """The library of a stored version, judged anew where its primitives are known, and the notes.

    Raises `InvalidPolicy`.
    """
    policy = directory.policies.load(version)
    try:
        return Library(primitives or ()).of(policy, trusted=primitives is None), policy.notes
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{directory.path}: {error}") from error


def _text(file: Path) -> str:
    """The text of a file. Raises `InvalidSkill`, which says why there is none, without the file's name."""
    try:
        return read_given(file, MODULE_BYTES)
    except UnicodeDecodeError as error:
        raise InvalidSkill(f"is no text in UTF-8: {error.reason}") from None
    except OSError as error:
        raise InvalidSkill(f"cannot be read: {reason(error)}") from None
