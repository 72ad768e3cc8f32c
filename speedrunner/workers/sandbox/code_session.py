"""A persistent Python session in the sandbox, for agents that write programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox.channel import (
    STOP_S,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    Said,
)
from speedrunner.workers.sandbox.child.values import ERROR_CHARS
from speedrunner.workers.sandbox.child_process import START_LIMIT_S, Child
from speedrunner.workers.sandbox.isolation import SandboxError

BOOTSTRAP_LIMIT_S = 60.0
"""Seconds that the bootstrap code of a session may take."""


class _Done(Said, tag="done"):
    text: str
    error: str | None


@dataclass(frozen=True, slots=True)
class CodeResult:
    """The result of a piece of code.

    Attributes:
        text: its output, then its last expression's value or its traceback.
        error: what it raised, or what ended its process, in one line of at most `ERROR_CHARS` characters;
            `None` if it ran to its end.
        lost: why the session's variables are lost; `None` if they are not.
    """

    text: str
    error: str | None = None
    lost: str | None = None


Result = TypeVar("Result")

_DONE: msgspec.json.Decoder[_Done] = msgspec.json.Decoder(_Done)

NOTE_CHARS = 100
"""Most characters of the note in the middle of a text that is cut."""


class CodeSession:
    """A Python session in a sandboxed process. An async context manager.

    The code may import the standard library and everything that `bootstrap` puts on `sys.path`. It cannot
    start processes or threads. One piece of code runs at a time.

    Args:
        sandbox: how the process is confined.
        mounts: folders that the code may read, by name; the session's variable `MOUNTS` has their paths.
        bootstrap: Python source that prepares the session's variables, also after a restart.
        output_chars: most characters of output in each answer.
    """

    def __init__(
        self,
        sandbox: SandboxConfig,
        *,
        mounts: Mapping[str, Path] | None = None,
        bootstrap: str = "",
        output_chars: int = 10_000,
    ) -> None:
        self._sandbox = sandbox
        self._mounts = dict(mounts or {})
        self._bootstrap = bootstrap
        self._output_chars = output_chars
        self._child: Child | None = None

    async def __aenter__(self) -> Self:
        """Start the process and prepare its variables.

        Raises `SandboxError`: the process does not start, or the bootstrap code fails.
        """
        await self._ensure_process()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def execute(self, code: str, limit_s: float) -> CodeResult:
        """Run a piece of code.

        A text over the session's limit is cut in its middle, and says so. The session restarts if the code
        does not stop when its time is up, or ends the process, or if an earlier piece left something behind
        that sends messages. Then there is no output, and the text reports it.

        Args:
            code: the code to run.
            limit_s: seconds that it may take.

        Raises `SandboxError`: a new process does not start.
        """
        try:
            code.encode()
        except UnicodeEncodeError as error:  # with Python's own message
            problem = f"UnicodeEncodeError: {error}"
            return CodeResult(problem, problem)
        child = await self._ensure_process()
        ran = await self._in_thread(child, self._run, child, code, limit_s)
        if isinstance(ran, CodeResult):
            return ran
        self._end()
        await self._ensure_process()
        lost = f"{ran}; the session was restarted and all its variables are lost"
        return CodeResult(f"[{lost}]", ran, lost)

    async def _ensure_process(self) -> Child:
        """Return the process, started if there is none."""
        if self._child is None:
            # Started in this thread, since the kernel ends it with the thread that started it.
            child = self._child = Child(self._sandbox, "code", self._mounts)
            await self._in_thread(child, self._prepare, child)
        return self._child

    async def _in_thread(self, child: Child, work: Callable[..., Result], *arguments: object) -> Result:
        """Do blocking work with the process in a thread. An interruption ends the process first."""
        waiting = asyncio.create_task(asyncio.to_thread(work, *arguments))
        try:
            return await asyncio.shield(waiting)
        except BaseException:
            child.strike()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                waiting.exception()  # of the struck process; asyncio logs exceptions that no one reads
            self._end()
            raise

    def _prepare(self, child: Child) -> None:
        child.wait(time.monotonic() + START_LIMIT_S)
        deadline = time.monotonic() + BOOTSTRAP_LIMIT_S
        places = {name: child.place(name) for name in self._mounts}
        try:
            child.channel.give(("start", places, self._bootstrap), deadline)
            said = child.channel.receive(_DONE, deadline)
        except ChannelError as error:
            raise SandboxError(f"a code session did not start: {type(error).__name__} {error}") from error
        child.pause()
        if said.error is not None:
            raise SandboxError(f"the bootstrap code of a code session failed:\n{said.error}")

    def _run(self, child: Child, code: str, limit_s: float) -> CodeResult | str:
        """Return the result, or why the process has to be replaced; then its output is lost."""
        deadline = time.monotonic() + limit_s + STOP_S
        try:
            child.channel.check_quiet()
            child.resume()
            child.channel.give(("execute", code, limit_s, self._output_chars), deadline)
            said = child.channel.receive(_DONE, deadline)
            child.pause()  # it may report that it is done, and continue
        except ChannelTimeout:
            return f"stopped at the time limit of {limit_s:g} s"
        except ChannelClosed:
            return f"the process ended: {child.death()}"
        except ChannelError as error:
            return f"the process sent {error} and was killed"
        problem = said.error and said.error.partition("\n")[0][:ERROR_CHARS]
        text = said.text[: self._output_chars + NOTE_CHARS]
        return CodeResult(text.strip("\n"), problem)

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None
