"""Error messages of refused input, as the text of a golden file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

Golden = Callable[[str, str], None]
"""The fixture `golden`."""


def refusals(
    tries: Iterable[tuple[object, Callable[[], object]]], kind: type[Exception], **places: object
) -> str:
    """Return each input with its error message, one line each.

    Args:
        tries: the input, and a function that passes it on and must fail.
        kind: class of the errors, or their base class.
        places: texts that differ between machines, such as a folder, by placeholder.
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
