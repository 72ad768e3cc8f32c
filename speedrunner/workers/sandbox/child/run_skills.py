"""Runs a library's skills. It reports their calls to the worker, and asks the worker to run their
primitives."""

from __future__ import annotations

import binascii
import functools
import inspect
import marshal
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

from .alarm import Alarm, TimeLimitReached
from .tracebacks import MODULE_FILE, Tracebacks
from .values import DEPTH_LIMIT, DESCRIPTION_LIMIT, NODE_LIMIT, VALUE_LIMIT, excess, to_json
from .wire import Wire, encode


class InvalidPrimitiveCall(Exception):
    """A primitive was called with invalid arguments."""


class EpisodeEnded(BaseException):
    """A primitive was called after the environment had ended the episode."""


class ActionLimitReached(BaseException):
    """A primitive was called after the episode's last allowed action."""


class CallActionLimitReached(BaseException):
    """A primitive was called after the last action that one tool call may take."""


REFUSALS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        *(InvalidPrimitiveCall, TypeError),
        *(EpisodeEnded, ActionLimitReached, CallActionLimitReached, TimeLimitReached),
    )
}
"""Refusals that the worker may send instead of a primitive's result."""


class Tracer:
    """Reports to the worker which skills run inside which, and with what result, for one tool call."""

    def __init__(self, wire: Wire, alarm: Alarm, tracebacks: Tracebacks) -> None:
        self._wire = wire
        self._alarm = alarm
        self._tracebacks = tracebacks
        self._running: list[Any] = []  # code objects of the reported skills that are running, outermost first
        self._omitted = [0]  # unreported calls, for each of them
        self._nodes = 1

    @property
    def omitted(self) -> int:
        """Unreported calls below the tool call itself."""
        return self._omitted[0]

    def primitive(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Ask the worker to run a primitive."""
        body = encode(["call", name, args, kwargs, self._find_line()])
        if problem := excess(body):
            raise ValueError(f"the arguments of {name} are {problem}")
        self._nodes += 1
        with self._alarm:
            self._wire.send(body)
            answer, *rest = self._wire.receive()
        if answer == "return":
            return rest[0]
        kind, text = rest
        raise REFUSALS[kind](text)

    def skill(
        self,
        name: str,
        function: Callable[..., Any],
        signature: inspect.Signature,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a skill from another one."""
        if self._nodes >= NODE_LIMIT or len(self._omitted) >= DEPTH_LIMIT:
            self._omitted[-1] += 1
            return function(**bound(name, signature, args, kwargs))
        self._nodes += 1
        depth = len(self._omitted)
        arguments: dict[str, Any] = {}
        refusal: TypeError | None = None
        try:
            arguments = bound(name, signature, args, kwargs)
        except TypeError as error:
            refusal = error
        recorded = {parameter: _plain(value) for parameter, value in arguments.items()}
        self._report(["enter", name, recorded, self._find_line()])
        self._omitted.append(0)
        self._running.append(getattr(function, "__code__", None))
        try:
            if refusal is not None:
                raise refusal
            result = function(**arguments)
            plain = _plain(result)
        except BaseException as error:
            self._leave(depth, None, self._tracebacks.describe(error))
            raise
        self._leave(depth, plain, None)
        return result

    def run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call the skill of the tool call itself; return its result in the form that is recorded."""
        self._running.append(getattr(function, "__code__", None))
        return _plain(function(**arguments))

    def _leave(self, depth: int, result: Any, error: str | None) -> None:
        message = ["leave", depth, sum(self._omitted[depth:]), result, error]
        del self._omitted[depth:], self._running[depth:]  # also what an interruption left open
        self._report(message)

    def _find_line(self) -> int | None:
        """Return the line that the running reported skill executes, counted from its first line as 1."""
        running = self._running[-1] if self._running else None
        frame: FrameType | None = sys._getframe() if running else None
        while frame is not None and frame.f_code is not running:
            frame = frame.f_back
        line = None if frame is None else frame.f_lineno
        return None if line is None or frame is None else line - frame.f_code.co_firstlineno + 1

    def _report(self, message: list[Any]) -> None:
        with self._alarm:
            body = encode(message)
            if excess(body):  # for example many large arguments, or characters of several bytes
                body = encode([*message[:-2], *map(_shorten, message[-2:])])
            self._wire.send(body)


def _plain(value: Any) -> Any:
    """Return a value in the form that is recorded."""
    return to_json(value, VALUE_LIMIT)[0]


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: to_json(item, DESCRIPTION_LIMIT)[0] for name, item in value.items()}
    return value if value is None else to_json(value, DESCRIPTION_LIMIT)[0]


class LoadedModule:
    """A library's module, newly loaded for one episode."""

    def __init__(
        self,
        wire: Wire,
        alarm: Alarm,
        source: str,
        compiled: str,
        skills: Sequence[str],
        primitives: Sequence[str],
        seed: str,
    ) -> None:
        self._wire = wire
        self._alarm = alarm
        self._tracebacks = Tracebacks(source)
        self._tracer = Tracer(wire, alarm, self._tracebacks)
        self._skills: dict[str, tuple[Callable[..., Any], inspect.Signature]] = {}
        self._failure: BaseException | None = None
        random.seed(seed)  # skills may draw random numbers, and replays must repeat them
        sys.modules["skills"] = ModuleType("skills")  # dataclasses look here for the module of a class
        module = vars(sys.modules["skills"])
        module.update({name: self._primitive(name) for name in primitives})
        try:
            if compiled:  # by this Python, from this source
                code = marshal.loads(binascii.a2b_base64(compiled))
            else:
                code = compile(source, MODULE_FILE, "exec", dont_inherit=True)
            self._tracebacks.find_functions(code)
            exec(code, module)
            for name in skills:
                self._skills[name] = module[name], inspect.signature(module[name])
                module[name] = self._skill(name)
        except BaseException as error:  # reported to each call of its skills
            self._failure = error

    def run(self, name: str, arguments: dict[str, Any], limit_s: float, left_s: float) -> None:
        """Run one skill as a tool call and report to the worker how it ended.

        Args:
            name: the skill's name.
            arguments: arguments by parameter name.
            limit_s: seconds that the call may take in total; its error names them.
            left_s: seconds of these that are left.
        """
        self._tracer = Tracer(self._wire, self._alarm, self._tracebacks)
        plain: Any = None
        text: str | None = None
        try:
            try:
                self._alarm.start(limit_s, left_s)
                if self._failure is not None:
                    raise self._failure
                function, signature = self._skills[name]
                plain = self._tracer.run(function, bound(name, signature, (), arguments))
            finally:
                self._alarm.stop()
        except BaseException as error:  # anything that a skill raises is its own error, even SystemExit
            self._alarm.stop()  # the first `stop` may itself have been interrupted
            plain, text = None, self._tracebacks.describe(error)
        body = encode(["end", self._tracer.omitted, plain, text])
        if excess(body):
            body = encode(["end", self._tracer.omitted, _shorten(plain), text])
        self._wire.send(body)

    def _primitive(self, name: str) -> Callable[..., Any]:
        """Return the primitive as the function that skills call."""

        def function(*args: Any, **kwargs: Any) -> Any:
            return self._tracer.primitive(name, args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function

    def _skill(self, name: str) -> Callable[..., Any]:
        """Return a skill that reports each of its calls."""
        skill, signature = self._skills[name]

        @functools.wraps(skill)
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._tracer.skill(name, skill, signature, args, kwargs)

        return function


def bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a call's arguments by parameter name.

    Raises `TypeError`: they do not fit the signature.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        shown = signature.replace(return_annotation=inspect.Signature.empty)
        raise TypeError(f"{name}{shown}: {error}") from None


def serve(wire: Wire, alarm: Alarm) -> None:
    """Load a library when the worker asks for it, and run its skills."""
    module: LoadedModule | None = None
    while True:
        what, *rest = wire.receive()
        if what == "load":
            module = LoadedModule(wire, alarm, *rest)
            wire.send(encode(["loaded"]))
        else:
            assert module is not None
            module.run(*rest)
