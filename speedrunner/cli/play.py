"""A person plays: the actor's primitives and texts, in a terminal."""

from __future__ import annotations

import ast
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, redirect_stdout, suppress
from inspect import Parameter, Signature
from types import FrameType
from typing import Any, Self

import msgspec

import envs
from envs import InvalidPrimitiveCall, TextEnv
from speedrunner.agents.actor import SUBMIT_ANSWER, task_text
from speedrunner.agents.replies import actor_view
from speedrunner.config.schema import Config
from speedrunner.config.task import chosen_task
from speedrunner.hosts.host import HostFault
from speedrunner.hosts.hosted_episode import HostedEpisode
from speedrunner.hosts.messages import Execute, Fault, Reset
from speedrunner.sandbox.child_pool import ChildPool
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import Ending, Module, ToolCall

HINT = "Type NAME, NAME WORDS or NAME(PARAMETER=VALUE, ...); ? lists what there is, Ctrl-D ends."
NO_LIMIT_S = 1e9
SHOWN_CHARS = 100
"""Of what was typed, in an error's text."""


class UnreadableLine(Exception):
    """What was typed is no call."""


class Interrupts:
    """Ctrl-C takes effect where a line is waited for, so that no call of the environment is torn apart.

    A second one before that ends the process at once. A context manager.
    """

    def __enter__(self) -> Self:
        self._pending = False
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def input(self, prompt: str) -> str:
        """Wait for a line. Raises `EOFError`, `KeyboardInterrupt`."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self._pending:
                raise KeyboardInterrupt
            return input(prompt)
        finally:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._pending = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def play(config: Config, say: Callable[[str], None]) -> None:
    """Play the chosen task with lines of the standard input until it is over, or they are, or Ctrl-C.

    The environment's limit of actions holds; that of LLM calls does not.

    Raises:
        EnvironmentFault: the task does not exist.
        HostFault: the environment broke.
    """
    task = chosen_task(config)
    actions, calls, ending = 0, 0, None
    pool = ChildPool(Sandbox())  # which starts nothing, as there are no skills
    with Interrupts() as interrupts, closing(envs.make(config.env.name, **config.env.options)) as env:
        with redirect_stdout(sys.stderr):
            episode = HostedEpisode(env, pool, Reset(task, Module(), env.limits.actions))
        opening = episode.opened.opening
        say(f"{env.description}\n\n{HINT}\n")
        say(task_text(opening))
        with suppress(EOFError, KeyboardInterrupt):
            while ending is None:
                line = interrupts.input("> ").strip()
                if line == "?":
                    say("\n".join(_tools(env)))
                    continue
                if not line:
                    continue
                try:
                    call = read_call(line, {each.name: each.signature for each in env.primitives})
                except UnreadableLine as error:
                    say(f"Error: {error}")
                    continue
                calls += 1
                if env.submits and call.name == SUBMIT_ANSWER.name:
                    ending = Ending.SUBMITTED
                    break
                try:
                    env.check_call(call.name, call.arguments)
                except InvalidPrimitiveCall as error:
                    say(f"Error: InvalidPrimitiveCall: {error}")
                    continue
                with redirect_stdout(sys.stderr):
                    executed = episode.execute(Execute(call, NO_LIMIT_S))
                if isinstance(executed, Fault):
                    raise HostFault(executed.message, executed.traceback)
                actions, ending = executed.actions, executed.ending
                say(actor_view(executed, config.run.reply_chars))
        outcome = env.outcome()
    detail = msgspec.json.encode(outcome.detail).decode()
    say(f"\n=== {ending or 'left'}: score {outcome.score:g}, {calls} calls, {actions} actions; {detail}")


def read_call(line: str, signatures: Mapping[str, Signature]) -> ToolCall:
    """Read a call as people type it.

    Args:
        line: `name`, `name words`, or a call in Python with literals. Words go to the parameters in their
            order: commas separate them where there are several.
        signatures: of each tool. A name that is not among them is let through without arguments.

    Raises:
        UnreadableLine: with how to write it.
    """
    found = re.fullmatch(r"(\w+)\s*(.*)", line, re.DOTALL)
    if found is None:
        raise UnreadableLine(f"{_brief(repr(line))} does not begin with a name. {HINT}")
    name, rest = found.groups()
    if name not in signatures or not rest:
        return ToolCall(name, {})
    signature = signatures[name]
    parameters = list(signature.parameters.values())
    if rest.startswith("("):
        return ToolCall(name, _literals(name, rest, signature))
    words = [each.strip() for each in rest.split(",", len(parameters) - 1)] if parameters else [rest]
    if len(words) > len(parameters):
        raise UnreadableLine(f"{name} takes nothing, but was given {_brief(repr(rest))}")
    given = zip(parameters, words, strict=False)
    return ToolCall(name, {parameter.name: _from_word(parameter, word) for parameter, word in given})


def _literals(name: str, rest: str, signature: Signature) -> dict[str, Any]:
    """The arguments of a call in Python's syntax."""
    try:
        tree = ast.parse(f"{name}{rest}", mode="eval").body
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
            raise ValueError("no call")
        positional = [ast.literal_eval(each) for each in tree.args]
        by_name = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
        return dict(signature.bind(*positional, **by_name).arguments)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UnreadableLine(
            f"cannot read {_brief(name + rest)}: write texts in quotes, as in {name}(...='...')"
        ) from None
    except TypeError as error:
        raise UnreadableLine(f"{name}{signature}: {_brief(str(error))}") from None


def _brief(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _from_word(parameter: Parameter, word: str) -> Any:
    """A word as the parameter's type; as text where it cannot be read so, which the environment refuses."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(word, parameter.annotation, strict=False)
    return word


def _tools(env: TextEnv) -> Iterator[str]:
    """One line on each primitive."""
    for each in env.primitives:
        signature = each.signature.replace(return_annotation=Signature.empty)
        yield f"{each.name}{signature}: {each.doc}"
    if env.submits:
        yield f"{SUBMIT_ANSWER.name}(): {SUBMIT_ANSWER.doc}"
