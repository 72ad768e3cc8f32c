"""A host: the process that owns one environment and plays its episodes, one tool call at a time.

It runs primitives and skills, counts actions, records call trees and keeps time limits. It is started and
spoken to by `speedrunner.hosts`, over one socket whose number is its only argument. What is wrong with a
call is the agent's affair and part of the reply; what is wrong with the environment is a `Fault`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import inspect
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from envs import EnvironmentFault, EpisodeOver, InvalidPrimitiveCall, Outcome, Primitive, TextEnv, make
from speedrunner.call_tree import MODULE_FILE, CallTree, Tracebacks
from speedrunner.host_messages import (
    HEADER,
    REQUESTS,
    Execute,
    Executed,
    Fault,
    Opened,
    Ready,
    Reply,
    Request,
    Reset,
    Start,
    pack,
)
from speedrunner.records import CallNode, Ending

RECURSION_LIMIT = 1_000
"""Python frames, for skills."""

RECURSION_RESERVE = 1_000
"""Frames that a primitive has for itself, however deep the skill that calls it."""

AGAIN_S = 0.2
"""Seconds between interruptions of a call that goes on after its time limit."""


class Unwound(BaseException):
    """Ends a skill from below. Not an `Exception`, so that a skill's own error handling lets it through."""


class EpisodeEnded(Unwound):
    """A primitive was called after the environment had ended the episode."""


class ActionLimitReached(Unwound):
    """A primitive was called after the episode's last action."""


class TimeLimitReached(Unwound):
    """The tool call used up its time."""


class EnvironmentBroke(Unwound):
    """The environment raised something that it should not."""


class Timer:
    """Interrupts the main thread when a call's time is up, again and again until the call gives in."""

    def __init__(self) -> None:
        self.expired = False
        self._limit_s = 0.0
        self._running = False
        self._held = False
        signal.signal(signal.SIGALRM, self._alarm)

    def start(self, seconds: float) -> None:
        """Raise `TimeLimitReached` in `seconds` from now, wherever the program then is."""
        self._limit_s = max(seconds, 0.001)  # 0 would mean never
        self.expired, self._running = False, True
        signal.setitimer(signal.ITIMER_REAL, self._limit_s, AGAIN_S)

    def stop(self) -> None:
        """Raise nothing any more."""
        self._running = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Interrupt nothing inside, but at its end: a world must not be left half-stepped."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.expired:
            raise self._error()

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._running:
            self.expired = True
            if not self._held:
                raise self._error()

    def _error(self) -> TimeLimitReached:
        return TimeLimitReached(f"stopped at the time limit of {self._limit_s:g} s")


class Episode:
    """One episode: the world, its budget of actions, and the library that may act in it."""

    def __init__(self, env: TextEnv, timer: Timer, request: Reset) -> None:
        self._env = env
        self._timer = timer
        self._action_limit = request.action_limit
        self._actions = 0
        self._observation: str | None = None
        self._fault: Fault | None = None
        random.seed(f"{request.task.name} {request.task.index}")  # skills may draw; plays must repeat
        self._tracebacks = Tracebacks(request.module)
        self._tree = CallTree(self._tracebacks.describe)
        self._tools = {each.name: self._primitive(each) for each in env.primitives}
        module: dict[str, Any] = {**self._tools, "__name__": "skills"}
        exec(compile(request.module, MODULE_FILE, "exec", dont_inherit=True), module)
        for name in (*request.public, *request.private):
            module[name] = self._skill(name, module[name])
        self._tools |= {name: module[name] for name in request.public}
        self.opened = Opened(env.reset(request.task), env.outcome())

    def execute(self, request: Execute) -> Executed | Fault:
        """Run one tool call; everything that it can do wrong ends in its node."""
        call = request.call
        self._tree = CallTree(self._tracebacks.describe)
        self._observation = None
        error: BaseException | None = None
        sys.setrecursionlimit(RECURSION_LIMIT)
        try:
            try:
                self._timer.start(request.time_limit_s)
                if call.name not in self._tools:
                    raise LookupError(f"no tool {call.name!r}; there are {', '.join(self._tools)}")
                self._tools[call.name](**call.arguments)
            finally:
                self._timer.stop()
        except BaseException as raised:  # whatever a skill raises is the skill's: SystemExit, too
            self._timer.stop()  # the first may itself have been interrupted
            error = raised
        if self._fault is not None:
            return self._fault
        node = self._tree.root or CallNode(call.name, "tool", call.arguments)
        if error is not None and node.error is None:
            node.error = self._tracebacks.describe(error)
        outcome = self._env.outcome()
        return Executed(
            node=node,
            observation=self._observation,
            surroundings=self._env.surroundings(),
            outcome=outcome,
            actions=self._actions,
            ending=self._ending(outcome),
            timed_out=self._timer.expired,
        )

    def _ending(self, outcome: Outcome) -> Ending | None:
        if self._env.done:
            return Ending.SUCCESS if outcome.success else Ending.FAILURE
        return Ending.ACTION_LIMIT if self._out_of_actions else None

    @property
    def _out_of_actions(self) -> bool:
        return self._action_limit is not None and self._actions >= self._action_limit

    def _primitive(self, primitive: Primitive) -> Callable[..., Any]:
        """Return the primitive as the function that skills call."""
        name, signature, advances = primitive.name, primitive.signature, primitive.advances
        act = functools.partial(self._act, primitive)

        def function(*args: Any, **kwargs: Any) -> Any:
            self._check_running(advances)
            return self._tree.run(name, "primitive", act, signature, args, kwargs, always=advances)

        return _dressed(function, name, primitive.doc, signature)

    def _skill(self, name: str, skill: Callable[..., Any]) -> Callable[..., Any]:
        """Return the skill so that each call of it is recorded."""
        signature = inspect.signature(skill)

        def function(*args: Any, **kwargs: Any) -> Any:
            return self._tree.run(name, "skill", skill, signature, args, kwargs)

        return _dressed(function, name, skill.__doc__ or "", signature)

    def _check_running(self, advances: bool) -> None:
        if self._fault is not None:
            raise EnvironmentBroke(self._fault.message)
        if self._env.done:
            raise EpisodeEnded("stopped, because the environment had already ended the episode")
        if advances and self._out_of_actions:
            raise ActionLimitReached(f"stopped at the limit of {self._action_limit} actions")

    def _act(self, primitive: Primitive, /, **arguments: Any) -> str | None:
        with self._timer.held(), _frames_to_spare():
            try:
                text = self._env.call(primitive.name, **arguments)
            except InvalidPrimitiveCall:
                raise
            except EpisodeOver as error:
                raise EpisodeEnded(str(error)) from error
            except BaseException as error:
                self._fault = fault(error, f"{primitive.name} failed")
                raise EnvironmentBroke(self._fault.message) from error
            if primitive.advances:
                self._actions += 1
                self._tree.count_action()
            self._observation = text
        return text


def _dressed(
    function: Callable[..., Any], name: str, doc: str, signature: inspect.Signature
) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


@contextmanager
def _frames_to_spare() -> Iterator[None]:
    """Let a world finish its step even when it is called from the bottom of a deep recursion."""
    sys.setrecursionlimit(RECURSION_LIMIT + RECURSION_RESERVE)
    try:
        yield
    finally:
        with suppress(RecursionError):
            sys.setrecursionlimit(RECURSION_LIMIT)


def fault(error: BaseException, what: str) -> Fault:
    """Describe an error that is not the agent's."""
    reason = str(error) if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}"
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


def serve(channel: Channel) -> None:
    """Answer requests until the owner closes the socket."""
    timer = Timer()
    env: TextEnv | None = None
    episode: Episode | None = None
    while (request := channel.receive()) is not None:
        reply: Reply
        what = "the environment failed"
        try:
            match request:
                case Start(env=name, options=options):
                    what = f"the environment {name} could not be made"
                    env = make(name, **options)
                    reply = Ready()
                case Reset(task=task):
                    assert env is not None
                    what = f"task {task.name} {task.index} could not be started"
                    episode = Episode(env, timer, request)
                    reply = episode.opened
                case Execute():
                    assert episode is not None
                    reply = episode.execute(request)
        except Exception as error:
            reply = fault(error, what)
        channel.send(reply)
    if env is not None:
        env.close()


def _die_with_owner(owner: int) -> None:
    """Have the kernel end this process when its owner ends, in whatever way; the socket tells it too late
    when a call is running."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != owner:
        sys.exit(0)


def main() -> None:
    """Run a host; for the arguments see `speedrunner.hosts`."""
    fd, owner = (int(each) for each in sys.argv[1:])
    _die_with_owner(owner)
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach whole groups; the owner decides
        signal.signal(number, signal.SIG_IGN)
    serve(Channel(fd))


if __name__ == "__main__":
    main()
