"""Errors of skills as text: what happened, and where in the library."""

from __future__ import annotations

import bisect
import inspect
import itertools
from types import CodeType

from .values import valid_text

MODULE_FILE = "<skills>"
"""File name of the library's compiled module, which identifies its frames."""

MESSAGE_CHARS = 2_000
"""Most characters of an exception's message."""

LINE_LIMIT = 200
"""Most characters of a source line in a traceback."""

TRACEBACK_LINES = 20
"""Most lines of a traceback."""

TRACEBACK = "Traceback (outermost call first):"
"""The line between an error's first paragraph and its traceback."""


class Tracebacks:
    """Describes exceptions by their frames inside one library module."""

    def __init__(self, module_source: str) -> None:
        self._lines = module_source.splitlines()
        self._starts: list[int] = []
        self._names: list[str] = []

    def find_functions(self, module: CodeType) -> None:
        """Find the first lines of the compiled module's functions."""
        for code in module.co_consts:
            if isinstance(code, CodeType) and code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<":
                self._starts.append(code.co_firstlineno)
                self._names.append(code.co_name)

    def describe(self, error: BaseException) -> str:
        """Return the error's type, message and place in one paragraph, then a traceback.

        Line numbers count from each function's `def`, as its author sees it.
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
        return f"{head} (in {self._place(places[-1])})\n{TRACEBACK}\n" + "\n".join(self._frames(places))

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
            code = self._lines[line - 1].strip()[:LINE_LIMIT]
            frames.append(f"  {self._place(line)}: {code}{repeated}")
        if len(frames) > TRACEBACK_LINES:
            half = TRACEBACK_LINES // 2
            frames[half:-half] = [f"  ... {len(frames) - 2 * half} more calls ..."]
        return frames


def _message(error: BaseException) -> str:
    try:
        text = valid_text(str(error))
    except Exception as failure:
        return f"<message failed: {type(failure).__name__}>"
    return text if len(text) <= MESSAGE_CHARS else f"{text[:MESSAGE_CHARS]}... ({len(text)} characters)"
