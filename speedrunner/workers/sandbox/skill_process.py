"""Runs skills in a child. The world outside grants their requests, or ends the child."""

from __future__ import annotations

import base64
import marshal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from speedrunner.store.records import Module
from speedrunner.workers.call_tree import CallTree
from speedrunner.workers.sandbox.channel import (
    STOP_S,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    Count,
    InvalidMessage,
    Said,
)
from speedrunner.workers.sandbox.child.tracebacks import MODULE_FILE
from speedrunner.workers.sandbox.child_process import Child, ChildPool

UNWIND_S = 1.0
"""Seconds that a call has to end after it learns that the episode is over."""

LOAD_LIMIT_S = 30.0
"""Seconds that a child may take to load a library."""


@lru_cache(maxsize=2)
def compile_module(source: str) -> str:
    """Compile a library once for all episodes of a worker. Return its code in base64; "" if it has an error,
    which a child then reports."""
    try:
        code = compile(source, MODULE_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return base64.b64encode(marshal.dumps(code)).decode()


_REPLACED = "a new process replaces it, and values stored in the module are lost"
_KILLED = f"the skill process was killed; {_REPLACED}"

Name = Annotated[str, msgspec.Meta(max_length=1_000)]
Line = Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None


class Call(Said, tag="call"):
    """A skill asks for a primitive in this line of the skill."""

    name: str
    args: list[Any]
    kwargs: dict[Name, Any]
    line: Line = None


class Enter(Said, tag="enter"):
    """One skill called another, in this line of the caller."""

    name: str
    arguments: Annotated[dict[Name, Any], msgspec.Meta(max_length=255)]
    line: Line = None


class Leave(Said, tag="leave"):
    """The skill at this depth has ended, and all below it; `omitted` of its calls were not reported."""

    depth: Annotated[int, msgspec.Meta(ge=1)]
    omitted: Count
    result: Any
    error: str | None


class Loaded(Said, tag="loaded"):
    """The module was loaded, or it cannot be; calls of its skills then report the error."""


class End(Said, tag="end"):
    """The skill that the actor called has ended."""

    omitted: Count
    result: Any
    error: str | None


_LOADED: msgspec.json.Decoder[Loaded] = msgspec.json.Decoder(Loaded)
_SAID: msgspec.json.Decoder[Call | Enter | Leave | End] = msgspec.json.Decoder(Call | Enter | Leave | End)


@dataclass(frozen=True, slots=True)
class Refused:
    """A primitive was not run: `kind` is the name of the exception that the skill gets.

    Attributes:
        final: whether every skill has to end now.
    """

    kind: str
    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tool call ended."""

    result: Any
    error: str | None
    omitted: int = 0


class Skills:
    """A library's skills for one episode, in a separate child; a killed one is replaced.

    Args:
        pool: source of the children.
        module: the module that they load.
        primitives: names of the primitives.
        seed: seed of the module `random`.
        act: runs a primitive and returns its result. If it raises an exception, the child is ended.

    Raises `SandboxError`: no child starts.
    """

    def __init__(
        self,
        pool: ChildPool,
        module: Module,
        primitives: Sequence[str],
        seed: str,
        act: Callable[[Call], str | Refused | None],
    ) -> None:
        self._pool = pool
        self._names = (*module.public, *module.private)
        code = compile_module(module.source)
        self._load_message = ("load", module.source, code, self._names, primitives, seed)
        self._act = act
        self._child: Child | None = pool.take()
        try:
            self._load(self._child, time.monotonic() + LOAD_LIMIT_S)
        except ChannelError:  # it will happen again, and each call of a skill reports it
            self.close()

    def run(self, name: str, arguments: Mapping[str, Any], limit_s: float, tree: CallTree) -> Ended:
        """Run a skill as one tool call, which the tree records. Its mistakes are in the result.

        The limit begins when the skill's process is ready. If that is a new one, it includes the time to load
        the module, which is the library's own code.

        Raises:
            SandboxError: no child starts.
            Exception: an exception of a primitive.
        """
        refusal: Refused | None = None
        stopped = Refused("TimeLimitReached", f"stopped at the time limit of {limit_s:g} s", final=True)
        is_loaded = self._child is not None
        child = self._child = self._child or self._pool.take()
        due = time.monotonic() + limit_s
        deadline = due + STOP_S
        try:
            if not is_loaded:
                self._load(child, deadline)
            child.channel.check_quiet()
            child.resume()
            child.channel.give(("run", name, arguments, limit_s, due - time.monotonic()), deadline)
            while not isinstance(said := child.channel.receive(_SAID, deadline), End):
                match said:
                    case Call():
                        answer: str | Refused | None = stopped
                        if time.monotonic() < due:
                            answer = self._act(said)
                        if not isinstance(answer, Refused):
                            child.channel.send(("return", answer), deadline)
                            continue
                        child.channel.send(("refuse", answer.kind, answer.text), deadline)
                        if answer.final and refusal is None:
                            refusal, deadline = answer, min(deadline, time.monotonic() + UNWIND_S)
                    case Enter():
                        if said.name not in self._names:
                            raise InvalidMessage(f"the call of a skill that is none ({said.name[:80]!r})")
                        tree.begin(said.name, said.arguments, said.line)
                    case Leave():
                        tree.end(said.depth, said.result, said.error, said.omitted)
            child.pause()  # it may report that it has ended, and continue
            return Ended(said.result, said.error, said.omitted)
        except ChannelTimeout:
            refusal = refusal or stopped
            error = f"{refusal.kind}: {refusal.text}; {_KILLED}"
        except ChannelClosed:
            error = f"SkillProcessEnded: the process of the skills ended ({child.death()}); {_REPLACED}"
        except InvalidMessage as forged:
            error = f"InvalidMessage: the process of the skills sent {forged}; {_KILLED}"
        except BaseException:
            self.close()
            raise
        self.close()
        return Ended(None, error)

    def close(self) -> None:
        """End the child. The skills can run again, in a new one."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _load(self, child: Child, deadline: float) -> None:
        """Let a child load the module, and stop it until a skill is called. Raises `ChannelError`: it does
        not load the module by the `deadline` of the monotonic clock, or ends."""
        child.channel.give(self._load_message, deadline)
        child.channel.receive(_LOADED, deadline)
        child.pause()
