"""An episode played by a person in a terminal, with the actor's primitives and texts."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import Signature
from types import FrameType
from typing import Self, get_args

import msgspec

import envs
from envs import InvalidPrimitiveCall, TextEnv
from serving.tokens.tools import ToolCall
from speedrunner.agents.actor import SUBMIT_ANSWER, actor_view, task_text
from speedrunner.agents.typed_call import FORMS, UnreadableLine, describe_tools, read_call
from speedrunner.config.named import choose_task
from speedrunner.config.schema import Config
from speedrunner.store.records import Module, Termination
from speedrunner.workers.local_worker import LocalWorker

HELP, QUIT = "help", "quit"
"""Lines that are no calls, unless a primitive has the same name."""

HINT = f"Type {FORMS}. Tab completes names, help lists the primitives, and quit or Ctrl-D ends the episode."
NO_LIMIT_S = 1e9


class Interrupts:
    """Context manager that delays Ctrl-C until a line is read, so that calls of the environment complete.

    A second Ctrl-C before that ends the process at once.
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


def play_by_hand(config: Config, say: Callable[[str], None]) -> None:
    """Play the chosen task with lines of the standard input until the episode or the input ends, or Ctrl-C.

    The environment's limit of actions applies, the limit of LLM calls does not. Raises `EnvironmentFault` if
    no task can be chosen, `WorkerFault` if the task does not exist or the environment fails.
    """
    with Interrupts() as interrupts:
        asyncio.run(_play(config, interrupts, say))


async def _play(config: Config, interrupts: Interrupts, say: Callable[[str], None]) -> None:
    env = envs.make(config.env.name, **config.env.options)
    worker = LocalWorker(env)
    actions, calls, termination = 0, 0, None
    try:
        opening = await worker.reset(choose_task(config), Module(), env.limits.actions)
        if sys.stdin.isatty():
            _edit_lines(env)
        say(f"{env.description}\n\n{HINT}\n")
        say(task_text(opening))
        while termination is None and (call := _next_call(env, interrupts, say)) is not None:
            calls += 1
            if env.submits and call.name == SUBMIT_ANSWER.name:
                termination = Termination.SUBMITTED
                break
            try:
                env.check_call(call.name, call.arguments)
            except InvalidPrimitiveCall as error:
                say(f"Error: InvalidPrimitiveCall: {error}")
                continue
            executed = await worker.execute(call, NO_LIMIT_S)
            actions, termination = executed.actions, executed.termination
            say(actor_view(executed, config.run.reply_chars))
    finally:
        await worker.close()
    assert worker.outcome is not None
    score, detail = worker.outcome.score, msgspec.json.encode(worker.outcome.detail).decode()
    say(f"\n=== {termination or 'left'}: score {score:g}, {calls} calls, {actions} actions; {detail}")


def _next_call(env: TextEnv, interrupts: Interrupts, say: Callable[[str], None]) -> ToolCall | None:
    """Return the next typed call; `None` at the end of the input, or after `quit`."""
    signatures = {each.name: each.signature for each in env.primitives}
    while True:
        try:
            line = interrupts.input("> ").strip()
            if line == QUIT and QUIT not in signatures:
                return None
            if line == HELP and HELP not in signatures:
                say("\n".join(describe_tools(env)))
            elif line:
                return read_call(line, signatures)
        except UnreadableLine as error:
            say(f"Error: {error}")
        except (EOFError, KeyboardInterrupt):
            return None


def _edit_lines(env: TextEnv) -> None:
    """Let a person edit and recall lines, and complete words with Tab."""
    import readline

    signatures = {each.name: each.signature for each in env.primitives}
    names = [*signatures, *([SUBMIT_ANSWER.name] if env.submits else []), HELP, QUIT]

    def complete(word: str, number: int) -> str | None:
        before = readline.get_line_buffer()[: readline.get_begidx()]
        return dict(enumerate(completions(before, word, names, signatures))).get(number)

    readline.set_completer(complete)
    readline.set_completer_delims(" \t(,='\"")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


def completions(
    before: str, word: str, names: Iterable[str], signatures: Mapping[str, Signature]
) -> list[str]:
    """Return the words that complete `word`: names of tools first in a line, then a call's choices and
    parameters.

    Args:
        before: the line before the word.
        names: what a line can begin with.
    """
    if not before.strip():
        return [each for each in names if each.startswith(word)]
    called = re.match(r"\s*(\w+)", before)
    signature = signatures.get(called[1]) if called else None
    parameters = signature.parameters.values() if signature is not None else ()
    choices = [str(value) for each in parameters for value in get_args(each.annotation)]
    by_name = [f"{each.name}=" for each in parameters] if "(" in before else []
    return [each for each in (*choices, *by_name) if each.startswith(word)]
