"""A Python session in the sandbox that lasts: what an agent that programs is given to work with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self, TypeVar

import msgspec

from speedrunner.sandbox.channel import ChannelClosed, ChannelError, ChannelTimeout
from speedrunner.sandbox.limits import Sandbox, SandboxError
from speedrunner.sandbox.process import Child

STOP_S = 0.5
"""Seconds after its time limit in which code can stop by itself, which keeps the session's variables."""

BOOTSTRAP_LIMIT_S = 60.0
"""Seconds that the code which prepares a session may take."""


class _Print(msgspec.Struct, tag="print", array_like=True, forbid_unknown_fields=True):
    text: str


class _Done(msgspec.Struct, tag="done", array_like=True, forbid_unknown_fields=True):
    written: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    tail: str
    error: str | None


Result = TypeVar("Result")

_SAID: msgspec.json.Decoder[_Print | _Done] = msgspec.json.Decoder(_Print | _Done)


class CodeSession:
    """A Python session in a sandboxed process. An async context manager.

    The code may import the standard library and what `bootstrap` puts on `sys.path`; it can start no process
    and no thread. One piece of code runs at a time.

    Args:
        sandbox: how the process is confined.
        mounts: folders that the code may read, by name; the session's variable `MOUNTS` has their paths.
        bootstrap: Python source that prepares the session's variables, also after a restart.
        output_chars: characters of output after which each answer is cut.
    """

    def __init__(
        self,
        sandbox: Sandbox,
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

        Raises:
            SandboxError: the process does not start, or the bootstrap code fails.
        """
        await self._running()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def execute(self, code: str, limit_s: float) -> str:
        """Run a piece of code and return what it printed.

        That is its standard output and error, and then the value of its last expression or its traceback.
        What is longer than the session's limit is cut in its middle, and says so. Where code does not stop
        when its time is up, or ends the process, the session begins anew, and the text says that its
        variables are gone.

        Args:
            code: what to run.
            limit_s: seconds that it may take.

        Raises:
            SandboxError: a new process does not start.
        """
        child = await self._running()
        text, lost = await self._apart(child, self._run, child, code, limit_s)
        if lost is not None:
            self._end()
            await self._running()
            text += f"\n[{lost}; the session was started anew: all variables are gone]"
        return text.strip("\n")

    async def _running(self) -> Child:
        """The process; one is started where none is there."""
        if self._child is None:
            # Started in this thread: the kernel ends it with the thread that started it.
            child = self._child = Child(self._sandbox, "session", self._mounts)
            await self._apart(child, self._prepare, child)
        return self._child

    async def _apart(self, child: Child, work: Callable[..., Result], *arguments: object) -> Result:
        """Wait for the process in a thread; whatever interrupts this ends the process first."""
        waiting = asyncio.create_task(asyncio.to_thread(work, *arguments))
        try:
            return await asyncio.shield(waiting)
        except BaseException:
            child.strike()
            await asyncio.wait([waiting])
            self._end()
            raise

    def _prepare(self, child: Child) -> None:
        child.wait()
        deadline = time.monotonic() + BOOTSTRAP_LIMIT_S
        places = {name: child.place(name) for name in self._mounts}
        try:
            child.channel.send(("start", places, self._bootstrap), deadline)
            while not isinstance(said := child.channel.receive(_SAID, deadline), _Done):
                pass
        except ChannelError as error:
            raise SandboxError(f"a code session did not start: {type(error).__name__} {error}") from error
        if said.error is not None:
            raise SandboxError(f"the bootstrap code of a code session failed:\n{said.error}")

    def _run(self, child: Child, code: str, limit_s: float) -> tuple[str, str | None]:
        """Return the output, and why the process has to be replaced."""
        head = ""
        deadline = time.monotonic() + limit_s + STOP_S
        try:
            child.channel.check_quiet()
            child.channel.send(("execute", code, limit_s, self._output_chars), deadline)
            while not isinstance(said := child.channel.receive(_SAID, deadline), _Done):
                head = (head + said.text)[: self._output_chars]
            tail = said.tail[: self._output_chars - len(head)]
            if (missing := said.written - len(head) - len(tail)) > 0:
                head += f"\n[cut here: {missing} of {said.written} characters are not shown]\n"
            return head + tail, None
        except ChannelTimeout:
            lost = f"stopped at the time limit of {limit_s:g} s"
        except ChannelClosed:
            lost = f"the process ended: {child.death()}"
        except ChannelError as error:
            lost = f"the process sent {error} and was killed"
        return head, lost

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None
