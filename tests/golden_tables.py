"""Tables of golden files: what each case prints, raises or returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from textwrap import indent

import pytest

Golden = Callable[[str, str], None]
"""The fixture `golden`."""


def table(texts: Mapping[str, str] | Iterable[tuple[object, str]], **places: object) -> str:
    """Return each case with its text, indented, below it.

    Args:
        texts: the case, and what was printed, raised or returned.
        places: texts that differ between machines, such as a folder, by placeholder.
    """
    lines = []
    for case, text in texts.items() if isinstance(texts, Mapping) else texts:
        for name, place in places.items():
            text = text.replace(str(place), name)
        lines += [str(case), indent(text, "    ")]
    return "\n".join([*lines, ""])


Kind = type[Exception] | tuple[type[Exception], ...]
"""A class of errors, their base class, or several classes."""


def error_message(attempt: Callable[[], object], kind: Kind, one_line: bool = True) -> str:
    """Call a function that must fail, and return the error's class and message."""
    with pytest.raises(kind) as caught:
        attempt()
    message = f"{type(caught.value).__name__}: {caught.value}"
    assert len(message.splitlines()) == 1 or not one_line, f"more than one line: {message}"
    return message


Tries = Mapping[str, Callable[[], object]] | Iterable[tuple[object, Callable[[], object]]]
"""The input, and a function that passes it on and must fail."""


def refusals(tries: Tries, kind: Kind, one_line: bool = True, **places: object) -> str:
    """Return each input with its error message. All inputs are tried before the first failure is reported.

    Args:
        tries: the input, and a function that passes it on and must fail.
        kind: what is raised.
        one_line: whether each message must be a single line.
        places: texts that differ between machines, such as a folder, by placeholder.
    """
    found, failures = [], []
    for case, attempt in tries.items() if isinstance(tries, Mapping) else tries:
        try:
            found.append((case, error_message(attempt, kind, one_line)))
        except (Exception, pytest.fail.Exception) as failure:
            failures.append(f"{case}: {failure!r}")
    assert not failures, "\n".join(failures)
    return table(found, **places)
