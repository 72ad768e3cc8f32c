"""What is refused, and in which words, as the text of a golden file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

Golden = Callable[[str, str], None]
"""The fixture `golden`."""


def refusals(
    tries: Iterable[tuple[object, Callable[[], object]]], kind: type[Exception], **places: object
) -> str:
    """Return a line for each try, and below it the line with which it is refused.

    Args:
        tries: what is tried, in words or as a value, and a function that tries it.
        kind: the class of the error; a subclass will do, and is shown.
        places: texts that differ between machines, such as a folder, by the name that stands for them.
    """
    lines = []
    for what, attempt in tries:
        with pytest.raises(kind) as caught:
            attempt()
        message = f"{type(caught.value).__name__}: {caught.value}"
        for name, place in places.items():
            message = message.replace(str(place), name)
        lines += [str(what), f"    {message}"]
        assert len("\n".join(lines).splitlines()) == len(lines), f"more than one line: {message}"
    return "\n".join([*lines, ""])
