"""Recording one tool call as the tree of calls that it made, within bounds that no skill can exceed.

Whatever a skill does, a record stays proportional to the work done: arguments and results are kept whole
while there is room for the tool call, and as short descriptions afterwards; pure computation stops being
recorded at a stated number and depth of calls. Calls that advance the world are always recorded.
"""

from __future__ import annotations

import ast
import bisect
import inspect
import itertools
import math
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from speedrunner.records import CallNode

NODE_LIMIT = 20_000
"""Recorded calls below one tool call; only those that advance the world go on being recorded after it."""

DEPTH_LIMIT = 100
"""Levels of recorded calls; what runs deeper is recorded under the deepest recorded call."""

TEXT_LIMIT = 4_000_000
"""Characters of arguments and results of one tool call that are kept whole."""

VALUE_DEPTH_LIMIT = 20
"""Levels of lists and objects in a recorded value."""

DESCRIPTION_LIMIT = 300
"""Characters that stand for a value which is not kept whole."""

MESSAGE_LIMIT = 2_000
"""Characters of an exception's message."""

FRAME_LIMIT = 20
"""Lines of a recorded traceback."""

MODULE_FILE = "<skills>"
"""File name under which the library's module is compiled, by which its frames are known."""

_TRACEBACK = "Traceback (outermost call first):"


class CallTree:
    """Records one tool call while it runs."""

    def __init__(self, describe: Callable[[BaseException], str]) -> None:
        self.root: CallNode | None = None
        self._describe = describe
        self._open: list[CallNode] = []  # the recorded calls being executed, outermost first
        self._nodes = 0
        self._room = TEXT_LIMIT

    def run(
        self,
        name: str,
        kind: Literal["primitive", "skill"],
        function: Callable[..., Any],
        signature: inspect.Signature,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        always: bool = False,
    ) -> Any:
        """Call `function` by parameter names and record it; its exceptions pass through.

        Args:
            name: of the call, as recorded.
            kind: of the call, as recorded.
            function: what to run.
            signature: its parameters, all of which can be passed by name.
            args: positional arguments as they were given.
            kwargs: keyword arguments as they were given.
            always: record it beyond the limits, too.
        """
        depth = len(self._open)
        recorded = always or (self._nodes < NODE_LIMIT and depth < DEPTH_LIMIT)
        node = CallNode(name, kind, {})
        if recorded:
            self._nodes += 1
            if self._open:
                self._open[-1].calls.append(node)
            else:
                self.root = node
            self._open.append(node)
        else:
            self._open[-1].omitted += 1
        started = time.perf_counter()
        try:
            arguments = _bound(name, signature, args, kwargs)
            if recorded:
                node.arguments = {parameter: self._json(value) for parameter, value in arguments.items()}
            result = function(**arguments)
            if recorded:
                node.result = self._json(result)
            return result
        except BaseException as error:
            if recorded:
                node.error = self._describe(error)
            raise
        finally:
            node.seconds = time.perf_counter() - started
            del self._open[depth:]  # also what an interruption left open below

    def count_action(self) -> None:
        """Add one action to every call that is being executed."""
        for node in self._open:
            node.actions += 1

    def _json(self, value: Any) -> Any:
        plain, size = to_json(value, self._room)
        self._room -= size
        return plain


def _bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        shown = signature.replace(return_annotation=inspect.Signature.empty)
        raise TypeError(f"{name}{shown}: {error}") from None


class _TooLarge(Exception):
    pass


def to_json(value: Any, room: int) -> tuple[Any, int]:
    """Return a value as plain JSON, and the characters that it takes.

    What JSON cannot say (sets, objects, non-finite numbers) becomes a description of at most
    `DESCRIPTION_LIMIT` characters, and so does a whole value that takes more than `room` characters, is
    nested too deeply, or contains itself. Tuples become lists.
    """
    used = 0

    def convert(value: Any, depth: int) -> Any:
        nonlocal used
        if depth > VALUE_DEPTH_LIMIT:
            raise _TooLarge
        used += 2
        plain: Any
        if value is None or isinstance(value, bool):
            plain = value
        elif isinstance(value, str):
            used += len(value)
            plain = _valid_text(value)
        elif type(value) is int and -(2**63) <= value < 2**63:
            used += 8
            plain = value
        elif type(value) is float and math.isfinite(value):
            used += 16
            plain = value
        elif isinstance(value, list | tuple):
            plain = [convert(each, depth + 1) for each in value]
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            used += sum(len(key) for key in value)
            plain = {_valid_text(key): convert(each, depth + 1) for key, each in value.items()}
        else:
            plain = _described(value)
            used += len(plain)
        if used > room:
            raise _TooLarge
        return plain

    try:
        return convert(value, 0), used
    except Exception:  # too large, or a container whose methods do not behave
        plain = _described(value)
        return plain, len(plain)


def _valid_text(text: str) -> str:
    return str.encode(text, errors="backslashreplace").decode()


_description = reprlib.Repr()
_description.maxlevel = 2
_description.maxstring = _description.maxother = DESCRIPTION_LIMIT


def _described(value: Any) -> str:
    try:
        return _valid_text(_description.repr(value)[:DESCRIPTION_LIMIT])
    except Exception as error:
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"


class Tracebacks:
    """Describes exceptions by those of their frames that lie inside one library module."""

    def __init__(self, module_source: str) -> None:
        functions = [each for each in ast.parse(module_source).body if isinstance(each, ast.FunctionDef)]
        self._lines = module_source.splitlines()
        self._starts = [each.lineno for each in functions]
        self._names = [each.name for each in functions]

    def describe(self, error: BaseException) -> str:
        """Return the error's type, message and place in one paragraph, then a traceback.

        Lines are counted from each function's `def`, as its author sees it.
        """
        head = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
        places = []
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == MODULE_FILE:
                places.append(trace.tb_lineno)
            trace = trace.tb_next
        if not places:
            return head
        return f"{head} (in {self._place(places[-1])})\n{_TRACEBACK}\n" + "\n".join(self._frames(places))

    def _place(self, line: int) -> str:
        index = bisect.bisect_right(self._starts, line) - 1
        if index < 0:
            return f"the preamble, line {line}"
        return f"{self._names[index]}, line {line - self._starts[index] + 1}"

    def _frames(self, places: list[int]) -> list[str]:
        frames = []
        for line, group in itertools.groupby(places):
            times = len(list(group))
            repeated = f" [{times} times]" if times > 1 else ""
            frames.append(f"  {self._place(line)}: {self._lines[line - 1].strip()}{repeated}")
        if len(frames) > FRAME_LIMIT:
            half = FRAME_LIMIT // 2
            frames[half:-half] = [f"  ... {len(frames) - 2 * half} more calls ..."]
        return frames


def short_error(error: str) -> str:
    """Return a recorded error's type, message and place, without its traceback."""
    return error.partition(f"\n{_TRACEBACK}\n")[0]


def _message(error: BaseException) -> str:
    try:
        text = _valid_text(str(error))
    except Exception as failure:
        return f"<message failed: {type(failure).__name__}>"
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}... ({len(text)} characters)"
