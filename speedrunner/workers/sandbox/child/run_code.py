"""A Python session: pieces of code run one after another in one namespace, and print."""

from __future__ import annotations

import ast
import io
import linecache
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from .alarm import Alarm
from .values import ERROR_CHARS, valid_text
from .wire import Wire, encode

HERE = str(Path(__file__).parent)


class Output(io.TextIOBase):
    """Standard output and error of one piece of code: the first and the last half of `limit` characters."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = self._tail = ""
        self._written = 0

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, text: str) -> int:
        """Keep the part of the text that there is room for."""
        room = self._half - len(self._head)
        self._written += len(text)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-self._half :]
        return len(text)

    @property
    def text(self) -> str:
        """Return what is kept, with a note on what is not."""
        missing = self._written - len(self._head) - len(self._tail)
        note = f"\n[cut here: {missing} of {self._written} characters are not shown]\n" if missing else ""
        return valid_text(f"{self._head}{note}{self._tail}")


def trace(error: BaseException) -> tuple[str, str]:
    """Return an error's traceback without our own frames, and its one-line message."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in shown.stack if not frame.filename.startswith(HERE)]
    )
    # A syntax error's location precedes it, indented.
    line = next((line for line in shown.format_exception_only() if not line.startswith(" ")), "")
    return "".join(shown.format()), valid_text(line.partition("\n")[0][:ERROR_CHARS])


class Session:
    """One persistent namespace."""

    def __init__(self, wire: Wire, alarm: Alarm) -> None:
        self._wire = wire
        self._alarm = alarm
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._pieces = 0

    def start(self, mounts: Mapping[str, str], bootstrap: str) -> None:
        """Run the code that prepares the namespace, and report to the worker what it raised."""
        self._names["MOUNTS"] = dict(mounts)
        problem: str | None = None
        try:
            exec(compile(bootstrap, "<bootstrap>", "exec", dont_inherit=True), self._names)
        except BaseException as error:
            problem = valid_text(trace(error)[0])
        self._wire.send(encode(["done", "", problem]))

    def execute(self, code: str, limit_s: float, limit_chars: int) -> None:
        """Run one piece of code; its output, its last expression's value and its error are printed."""
        self._pieces += 1
        output = Output(limit_chars)
        sys.stdout = sys.stderr = output
        file = f"<execute {self._pieces}>"
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        problem: str | None = None
        try:
            try:
                self._alarm.start(limit_s, limit_s)
                self._run(code, file, output)
            finally:
                self._alarm.stop()
        except BaseException as error:
            self._alarm.stop()
            text, problem = trace(error)
            output.write(text)
        self._wire.send(encode(["done", output.text, problem]))

    def _run(self, code: str, file: str, output: Output) -> None:
        tree = compile(code, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        last: CodeType | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            expression = tree.body.pop()
            assert isinstance(expression, ast.Expr)
            last = compile(ast.Expression(expression.value), file, "eval", dont_inherit=True)
        exec(compile(tree, file, "exec", dont_inherit=True), self._names)
        if last is not None:
            value = eval(last, self._names)
            if value is not None:
                output.write(f"{value!r}\n")


def serve(wire: Wire, alarm: Alarm) -> None:
    """Run pieces of code as they arrive."""
    session = Session(wire, alarm)
    while True:
        what, *rest = wire.receive()
        if what == "start":
            session.start(*rest)
        else:
            session.execute(*rest)
