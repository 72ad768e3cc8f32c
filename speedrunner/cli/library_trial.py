"""`speedrunner library check | try`: test a module of skills before it is in a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from serving.model_config import ModelConfig
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tool_check import ToolCheck
from serving.tokens.tools import ToolSpec
from serving.weights import prepare
from speedrunner.agents.reading import call_lines
from speedrunner.cli.command import key_values
from speedrunner.cli.library_command import read_module
from speedrunner.cli.output import say, say_error, say_json
from speedrunner.config.compose import GROUPS, compose
from speedrunner.config.named import choose_task
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.library.library import Library
from speedrunner.library.rules import MODULE_BYTES, InvalidSkill
from speedrunner.runs.setup import set_up
from speedrunner.runs.skill_call import SkillCall, call_skill
from speedrunner.workers.sandbox.child.values import valid_text
from speedrunner.workers.sandbox.code_session import load_failure
from speedrunner.workers.sandbox.isolation import sandbox_limits

Module = Annotated[Path, typer.Argument(metavar="FILE.py", help="A module of skills.", show_default=False)]
Overrides = Annotated[list[str] | None, key_values("Settings, such as env=babyai model=tiny-random.")]


def check(file: Module, overrides: Overrides = None) -> None:
    """Check a module of skills by the rules of a library.

    Every error is printed. A function counts as private if its name begins with an underscore. If a public
    one has choices of texts, its calls are checked with the model's tokenizer. No server is started. Classes
    are loaded in the sandbox.

    Example: speedrunner library check skills.py env=babyai model=tiny-random
    """
    setup = set_up(compose(overrides or []))
    model_config = setup.model_config
    library = Library(
        setup.env.primitives,
        load=partial(load_failure, sandbox_limits(setup.config.sandbox)),
        check=_check_of(model_config),
    )
    try:
        library = library.write(read_module(file), sleep=0, limit=MODULE_BYTES)
        asyncio.run(library.check_loading())
    except InvalidSkill as error:
        say(*(f"{file}: {line}" for line in str(error).splitlines()))
        raise typer.Exit(1) from None
    count = f"{len(library.skills)} skills, {len(library.public)} of them public"
    say(f"{file} is valid: {count}, for {setup.config.env.name} and {model_config.name}")


def _check_of(model_config: ModelConfig) -> Callable[[ToolSpec], None]:
    """Return a check whether the model can decode and read calls of a tool; see `ToolCheck.check`."""
    name = model_config.tool_format
    if model_config.api != "completions" or name is None:
        return lambda tool: None  # the tokenizer of a hosted model is unknown

    @cache
    def load() -> ToolCheck:
        tokenizer = ChatTokenizer(prepare(model_config, say_error), model_config.revision)
        return ToolCheck(tokenizer, FORMATS[name], model_config.role("actor").string_tokens)

    def check(tool: ToolSpec) -> None:
        if not tool.is_plain:  # loading a tokenizer and the grammar library takes seconds
            load().check(tool)

    return check


def try_(
    file: Module,
    skill: Annotated[str, typer.Argument(help="The function to call.", show_default=False)],
    overrides: Overrides = None,
    arguments: Annotated[str, typer.Option(metavar="JSON", help="Its arguments by name.")] = "{}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one object: result, error, calls, actions, done, score.")
    ] = False,
) -> None:
    """Call one skill of a module in the sandbox, and print its calls.

    It plays on a new episode. The call may take sandbox.call_wall_s seconds (300 by default). Exit status 1:
    the call was refused, failed or was killed.

    Example: speedrunner library try skills.py explore env=babyai task.index=7 --arguments '{"steps": 5}'
    """
    try:
        source = read_module(file)
        setup = set_up(_compose_for_skill(overrides or [], skill))
        call = asyncio.run(call_skill(setup, choose_task(setup.config), source, skill, arguments))
    except InvalidSkill as error:
        call = SkillCall(error=f"{file}: {error}")
    except Exception as error:  # reported in the object as it is without --json
        if as_json:
            _say_call(SkillCall(error=str(error) or type(error).__name__))
        raise
    if as_json:
        _say_call(call)
    elif call.calls:
        say(*call_lines(msgspec.to_builtins(call.calls)))
        state = "the episode has ended" if call.done else "the episode has not ended"
        say(f"{call.actions} actions, score {call.score:g}, {state}")
    else:
        say(*(call.error or "").splitlines())
    if call.error is not None:
        raise typer.Exit(1)


def _compose_for_skill(overrides: list[str], skill: str) -> Config:
    """Compose settings; an error also says how to pass arguments to the skill. Raises `InvalidConfig`."""
    try:
        return compose(overrides)
    except InvalidConfig as error:
        for key, _, value in (each.partition("=") for each in overrides):
            if key not in {*GROUPS, *Config.__struct_fields__} and key.isidentifier():
                how = f"to pass an argument to {skill}, write --arguments '{{\"{key}\": {value}}}'"
                raise InvalidConfig(f"{error}; {how}") from None
        raise


def _say_call(call: SkillCall) -> None:
    """Print a call as JSON; a name from the command line may be invalid text."""
    if call.error is not None:
        call.error = valid_text(call.error)
    say_json(call)
