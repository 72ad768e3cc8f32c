"""A host: the process that owns one environment and plays its episodes, one tool call at a time.

It runs primitives, counts actions, records call trees and keeps time limits; skills run in a sandboxed child
(`speedrunner.sandbox`), one for each episode. It is started and spoken to by `speedrunner.hosts.pool`, over
one socket whose number is its first argument. What is wrong with a call is the agent's affair and part of the
reply; what is wrong with the environment is a `Fault`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import inspect
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from envs import EnvironmentFault, EpisodeOver, InvalidPrimitiveCall, Outcome, Primitive, TextEnv, make
from speedrunner.hosts.call_tree import CallTree
from speedrunner.hosts.messages import (
    HEADER,
    REQUESTS,
    Execute,
    Executed,
    Fault,
    Finish,
    Opened,
    Ready,
    Reply,
    Request,
    Reset,
    Start,
    pack,
)
from speedrunner.records import Ending
from speedrunner.sandbox.channel import InvalidMessage
from speedrunner.sandbox.limits import SandboxError
from speedrunner.sandbox.pool import ChildPool
from speedrunner.sandbox.skills import Ended, Granted, Library, Refused, Skills


class EnvironmentBroke(Exception):
    """The environment raised something that it should not."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Episode:
    """One episode: the world, its budget of actions, and the library that may act in it.

    It is the `World` of the library's skills: they run in a child process and ask it for primitives.
    """

    def __init__(self, env: TextEnv, pool: ChildPool, request: Reset) -> None:
        self._env = env
        self._action_limit = request.action_limit
        self._actions = 0
        self._observation: str | None = None
        self._tree = CallTree("", "tool", {})
        self._primitives = {each.name: each for each in env.primitives}
        self._public = request.public
        self._skills: Skills | None = None
        self.opened = Opened(env.reset(request.task), env.outcome())
        if request.public:
            # Skills may draw and plays must repeat, but what a skill sees must not name the task.
            seed = hashlib.sha256(f"{request.task.name} {request.task.index}".encode()).hexdigest()
            primitives = {each.name: each.doc for each in env.primitives}
            library = Library(request.module, (*request.public, *request.private), primitives, seed)
            self._skills = Skills(pool, library, self)

    def execute(self, request: Execute) -> Executed | Fault:
        """Run one tool call; everything that it can do wrong ends in its node.

        Raises:
            SandboxError: no process for skills starts.
        """
        name, arguments = request.call.name, request.call.arguments
        self._observation = None
        try:
            ended = self._run(name, arguments, request.time_limit_s)
        except EnvironmentBroke as broken:
            return broken.fault
        self._tree.end(0, ended.result, ended.error, ended.omitted)
        outcome = self._env.outcome()
        return Executed(
            node=self._tree.root,
            observation=self._observation,
            surroundings=self._env.surroundings(),
            outcome=outcome,
            actions=self._actions,
            ending=self._ending(outcome),
            timed_out=ended.timed_out,
        )

    def close(self) -> None:
        """End the skills' process."""
        if self._skills is not None:
            self._skills.close()

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Granted | Refused:
        """Run a primitive for a skill, and record it."""
        if (primitive := self._primitives.get(name)) is None:
            raise InvalidMessage(f"the call of a primitive that is none ({name[:80]!r})")
        if (refused := self._refusal(primitive)) is not None:
            return refused
        arguments, problem = _bound(primitive, args, kwargs)
        depth = self._tree.begin(name, "primitive", arguments, always=primitive.advances)
        answer = problem or self._act(primitive, arguments)
        if depth is not None:
            self._tree.end(depth, *_outcome(answer))
        return answer

    def enter(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Record that a skill was called from another one."""
        self._tree.begin(name, "skill", arguments)

    def leave(self, depth: int, omitted: int, result: Any, error: str | None) -> None:
        """Record how such a call ended."""
        self._tree.end(depth, result, error, omitted)

    def _run(self, name: str, arguments: Mapping[str, Any], limit_s: float) -> Ended:
        """Run what the actor called."""
        if name in self._public and self._skills is not None:
            self._tree = CallTree(name, "skill", arguments)
            return self._skills.run(name, arguments, limit_s)
        if (primitive := self._primitives.get(name)) is None:
            self._tree = CallTree(name, "tool", arguments)
            names = ", ".join([*self._primitives, *self._public])
            return Ended(None, f"LookupError: no tool {name!r}; there are {names}")
        if (refused := self._refusal(primitive)) is not None:
            self._tree = CallTree(name, "tool", arguments)
            return Ended(*_outcome(refused))
        arguments, problem = _bound(primitive, (), arguments)
        self._tree = CallTree(name, "primitive", arguments)
        return Ended(*_outcome(problem or self._act(primitive, arguments)))

    def _act(self, primitive: Primitive, arguments: Mapping[str, Any]) -> Granted | Refused:
        try:
            text = self._env.call(primitive.name, **arguments)
        except InvalidPrimitiveCall as error:
            return Refused("InvalidPrimitiveCall", str(error))
        except EpisodeOver as error:
            return Refused("EpisodeEnded", str(error), final=True)
        except BaseException as error:
            raise EnvironmentBroke(fault(error, f"{primitive.name} failed")) from error
        if primitive.advances:
            self._actions += 1
            self._tree.count_action()
        self._observation = text
        return Granted(text)

    def _refusal(self, primitive: Primitive) -> Refused | None:
        if self._env.done:
            text = "stopped, because the environment had already ended the episode"
            return Refused("EpisodeEnded", text, final=True)
        if primitive.advances and self._out_of_actions:
            text = f"stopped at the limit of {self._action_limit} actions"
            return Refused("ActionLimitReached", text, final=True)
        return None

    def _ending(self, outcome: Outcome) -> Ending | None:
        if self._env.done:
            return Ending.SUCCESS if outcome.success else Ending.FAILURE
        return Ending.ACTION_LIMIT if self._out_of_actions else None

    @property
    def _out_of_actions(self) -> bool:
        return self._action_limit is not None and self._actions >= self._action_limit


def _bound(
    primitive: Primitive, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Refused | None]:
    """Return a call's arguments by parameter name; where they do not fit, none and why."""
    try:
        return primitive.signature.bind(*args, **kwargs).arguments, None
    except TypeError as error:
        shown = primitive.signature.replace(return_annotation=inspect.Signature.empty)
        return {}, Refused("TypeError", f"{primitive.name}{shown}: {error}")


def _outcome(answer: Granted | Refused) -> tuple[str | None, str | None]:
    """The result and the error that are recorded."""
    if isinstance(answer, Granted):
        return answer.result, None
    return None, f"{answer.kind}: {answer.text}"


def fault(error: BaseException, what: str) -> Fault:
    """Describe an error that is not the agent's."""
    meant = isinstance(error, EnvironmentFault | SandboxError)
    reason = str(error) if meant else f"{type(error).__name__}: {error}"
    return Fault(f"{what}: {reason}", "".join(traceback.format_exception(error)))


class Channel:
    """The host's end of the socket."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._stream = self._socket.makefile("rb")

    def receive(self) -> Request | None:
        """Wait for the next request; `None` when the owner has closed the socket or is gone."""
        header = self._stream.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        (size,) = HEADER.unpack(header)
        body = self._stream.read(size)
        return REQUESTS.decode(body) if len(body) == size else None

    def send(self, reply: Reply) -> None:
        """Answer the last request."""
        try:
            packed = pack(reply)
        except Exception as error:  # an environment's texts or outcome that are no JSON
            packed = pack(fault(error, "the reply cannot be written as JSON"))
        with suppress(BrokenPipeError):
            self._socket.sendall(packed)


class Server:
    """Answers the owner's requests, one after another."""

    def __init__(self, start: Start) -> None:
        self._pool = ChildPool(start.sandbox)
        self._pool.refill()  # while the environment is made
        self._episode: Episode | None = None
        try:
            self._env = make(start.env, **start.options)
        except BaseException:
            self._pool.close()
            raise

    def answer(self, request: Reset | Execute | Finish) -> Reply | None:
        """Do what is asked for."""
        match request:
            case Reset():
                self._finish()
                self._episode = Episode(self._env, self._pool, request)
                return self._episode.opened
            case Execute():
                assert self._episode is not None
                return self._episode.execute(request)
            case Finish():
                self._finish()
                return None

    def prepare(self) -> None:
        """Use the time until the next request."""
        self._pool.refill()

    def close(self) -> None:
        """End all processes and close the environment."""
        self._finish()
        self._pool.close()
        self._env.close()

    def _finish(self) -> None:
        if self._episode is not None:
            self._episode.close()
            self._episode = None


def serve(channel: Channel) -> None:
    """Answer requests until the owner closes the socket."""
    start = channel.receive()
    if not isinstance(start, Start):
        return
    try:
        server = Server(start)
    except Exception as error:
        channel.send(fault(error, f"the environment {start.env} could not be made"))
        return
    channel.send(Ready())
    try:
        while (request := channel.receive()) is not None:
            assert not isinstance(request, Start)
            try:
                reply = server.answer(request)
            except Exception as error:
                reply = fault(error, _what(request))
            if reply is not None:
                channel.send(reply)
            server.prepare()
    finally:
        server.close()


def _what(request: Reset | Execute | Finish) -> str:
    if isinstance(request, Reset):
        return f"task {request.task.name} {request.task.index} could not be started"
    return "the environment failed"


def _die_with_owner(owner: int) -> None:
    """Have the kernel end this process when its owner ends, in whatever way; the socket tells it too late
    when a call is running."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != owner:
        sys.exit(0)


def main() -> None:
    """Run a host; for the arguments see `speedrunner.hosts.pool`."""
    fd, owner = (int(each) for each in sys.argv[1:])
    _die_with_owner(owner)
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach whole groups; the owner decides
        signal.signal(number, signal.SIG_IGN)
    serve(Channel(fd))


if __name__ == "__main__":
    main()
