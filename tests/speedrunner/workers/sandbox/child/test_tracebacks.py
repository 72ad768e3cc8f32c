"""Errors of a library are told by function and line, as its author counts them."""

from __future__ import annotations

import pytest

from speedrunner.workers.sandbox.child.tracebacks import MODULE_FILE, Tracebacks

SOURCE = '''
LIMIT = 3

class Point:
    def __init__(self, x):
        self.x = 1 / x

def plain(x):
    """Compute.

def nothing():
    """
    return [1 / each for each in (x,)]

def outer(x):
    def inner():
        return 1 / x
    return inner()
'''


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("plain(0)", "in plain, line 6"),
        ("outer(0)", "in outer, line 3"),
        ("Point(0)", "in the preamble, line 6"),
    ],
)
def test_where_it_happened(call: str, place: str) -> None:
    module = compile(SOURCE, MODULE_FILE, "exec")
    tracebacks = Tracebacks(SOURCE)
    tracebacks.find_functions(module)
    names: dict[str, object] = {}
    exec(module, names)
    with pytest.raises(ZeroDivisionError) as raised:
        eval(call, names)
    assert tracebacks.describe(raised.value).startswith(f"ZeroDivisionError: division by zero ({place})")


def test_a_module_that_is_no_python_has_no_places() -> None:
    assert Tracebacks("def (").describe(ValueError("no")) == "ValueError: no"
