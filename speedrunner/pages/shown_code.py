"""Code as pages show it: highlighted texts, trees of calls, and changes of skills as diffs."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

import msgspec
from markupsafe import Markup, escape

from serving.usage import Usage
from speedrunner.agents.reading import result_text
from speedrunner.library.definition import Definition
from speedrunner.library.library import Library
from speedrunner.plain.console import visible
from speedrunner.store.records import CallNode, Edit

CALLS = 200
"""Calls below a turn's call that its page shows."""

CHARS, TEXT_CHARS, LONG_CHARS = 50_000, 8_000, 80
"""Characters of one text on a page, of a text of a call, and of an argument that is shown within its call."""

CODE = ("code", "source")
"""Arguments that are shown as code, whatever their length."""


def cut(text: str, chars: int = CHARS) -> str:
    """Return a text of at most `chars` characters as it is, and the start of a longer one with its length."""
    return text if len(text) <= chars else f"{text[:chars]} … ({len(text):,} characters)"


def limit_calls(node: CallNode) -> CallNode:
    """Return a call with the first `CALLS` calls below it; the others count as omitted."""
    return node if count_calls(node) <= CALLS else _limit_calls(node, iter(range(CALLS)))


def _limit_calls(node: CallNode, left: Iterator[int]) -> CallNode:
    shown = [_limit_calls(call, left) for call, _ in zip(node.calls, left, strict=False)]
    hidden = sum(1 + count_calls(call) for call in node.calls[len(shown) :])
    return msgspec.structs.replace(node, calls=shown, omitted=node.omitted + hidden)


def count_calls(node: CallNode) -> int:
    """Return the number of calls below a call, omitted ones included."""
    return node.omitted + sum(1 + call.omitted for call in node.below())


def count_tokens(usage: Usage) -> str:
    """Return the numbers of tokens by class."""
    prompt = f"{usage.uncached:,} uncached, {usage.cached:,} cached"
    return f"{prompt}, {usage.reasoning:,} reasoning, {usage.action:,} action tokens"


def list_texts(node: CallNode) -> dict[str, str]:
    """Return the arguments that are shown apart from their call, by parameter: code and long values."""
    texts = {}
    for name, value in node.arguments.items():
        if isinstance(value, str) and (name in CODE or "\n" in value):
            texts[name] = cut(value, TEXT_CHARS)
        elif len(shown := repr(value)) > LONG_CHARS:
            texts[name] = cut(shown, TEXT_CHARS)
    return texts


def write_call(node: CallNode, texts: Container[str]) -> str:
    """Return a call in Python syntax, without those of its arguments that are `texts`."""
    given = (f"{key}={'…' if key in texts else repr(value)}" for key, value in node.arguments.items())
    return cut(f"{node.name}({', '.join(given)})", TEXT_CHARS)


@lru_cache(maxsize=1024)
def highlight(text: str) -> Markup:
    """Return a text as HTML, with syntax highlighting if it is Python."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return escape(visible(text))
    return Markup(highlight(visible(text), PythonLexer(), HtmlFormatter(nowrap=True)))


def describe_result(node: CallNode, chars: int = TEXT_CHARS) -> str:
    """Return the result of a call, or its error, in at most `chars` characters."""
    return cut(result_text(node.result) if node.error is None else node.error, chars)


SHARED = "shared code"
"""Heading of the diff of imports, constants and classes."""


class Diff(msgspec.Struct, frozen=True):
    """The changed lines of one function, or of the shared code.

    Attributes:
        lines: a unified diff without its file names.
        added, removed: number of lines.
    """

    name: str
    lines: list[str]
    added: int
    removed: int


def describe_edit(edit: Edit) -> str:
    """Return an edit's action and names."""
    if edit.action == "visibility" and isinstance(edit.public, bool):
        return f"make {edit.name} {'public' if edit.public else 'private'}"
    renamed = f" to {edit.new_name}" if edit.new_name else ""
    return f"{edit.action} {edit.name}{renamed}"


def list_functions(definitions: Iterable[Definition]) -> dict[str, str]:
    """Return the sources of functions by name."""
    return {each.name: each.source for each in definitions if each.kind == "function"}


def compare_libraries(before: Library, after: Library) -> list[Diff]:
    """Return the differences of two libraries: of the shared code, then of each function."""
    old, new = (
        {SHARED: "\n".join(library.shared.values()), **list_functions(library.definitions)}
        for library in (before, after)
    )
    return [
        compare_texts(name, old.get(name, ""), new.get(name, ""))
        for name in dict.fromkeys([*new, *old])
        if old.get(name) != new.get(name)
    ]


def compare_texts(name: str, before: str, after: str) -> Diff:
    """Return the changed lines of a text."""
    old, new = (text.split("\n") if text else [] for text in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the names of files
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Diff(name, lines, added, removed)
