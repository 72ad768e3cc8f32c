"""What a message may hold is told before it is decoded, however it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrunner.workers.sandbox.child.values import (
    MESSAGE_LIMIT,
    NESTING_LIMIT,
    TOKEN_LIMIT,
    VALUE_CHARS,
    VALUE_LIMIT,
    excess,
    to_json,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet='a"\\[]{},:\n\u00e9')
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a"\\[{'), inner),
)


@given(VALUES)
def test_depth_is_counted_as_json_nests_and_not_within_strings(value: Any) -> None:
    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    room = NESTING_LIMIT - depth(value)
    # Brackets in a string make it look at all of the message, and count for nothing.
    padding = json.dumps("[" * (NESTING_LIMIT + 1)).encode()
    for extra, too_deep in ((room - 1, False), (room, True)):
        body = b"[" * extra + padding + b"," + json.dumps(value).encode() + b"]" * extra
        assert (excess(b"[" + body + b"]") is not None) == too_deep


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'["' + b"x" * (MESSAGE_LIMIT - 4) + b'"]', None),
        (b'["' + b"x" * (MESSAGE_LIMIT - 3) + b'"]', f"{MESSAGE_LIMIT + 1} bytes; 2097152 are allowed"),
        (b'["' + b"[{,\\\"" * 200_000 + b'"]', None),
        (b"[" + b"1," * (TOKEN_LIMIT + 1), f"more than {TOKEN_LIMIT} strings, brackets and commas"),
        (b"[" + b'"",' * (TOKEN_LIMIT // 2 + 1), f"more than {TOKEN_LIMIT} strings, brackets and commas"),
        (b"[" * NESTING_LIMIT + b"]" * NESTING_LIMIT, None),
        (b"[" * (NESTING_LIMIT + 1), f"values within values on more than {NESTING_LIMIT} levels"),
        (b'{"":' * (NESTING_LIMIT + 1), f"values within values on more than {NESTING_LIMIT} levels"),
    ],
)  # fmt: skip
def test_what_is_too_much(body: bytes, problem: str | None) -> None:
    assert excess(body) == problem


@pytest.mark.parametrize(
    ("unit", "is_too_much"),
    [
        *((unit, True) for unit in (b"{},", b'"",', b'"', b"[]", b'"[')),
        *((unit, False) for unit in (b'"\\', b"\\", b'\\"')),
    ],
)
def test_looking_is_linear_whatever_it_is(unit: bytes, is_too_much: bool) -> None:
    """With anything worse, two megabytes would take hours."""
    assert (excess((unit * MESSAGE_LIMIT)[:MESSAGE_LIMIT]) is not None) == is_too_much


def test_all_that_is_kept_whole_fits() -> None:
    """The worker would else refuse what an honest child says."""
    values = VALUE_LIMIT // VALUE_CHARS - 1
    for value in ([1] * values, [{}] * values, [""] * values, {str(i): [i] for i in range(values // 4)}):
        plain, _ = to_json(value, VALUE_LIMIT)
        assert plain == value
        assert excess(json.dumps(["end", 0, 0, plain, None]).encode()) is None


class Room:
    """An object of a skill, without an own description."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (Room(name="hall", doors=["a"]), "Room(name='hall', doors=['a'])"),
        ([Room(next=Room(next=Room()))], ["Room(next=Room(next=Room()))"]),
        ({Room(name="hall")}, "{Room(name='hall')}"),
        (object(), "object()"),
        (Room.__init__, "<function Room.__init__>"),
    ],
    ids=["fields", "fields of fields", "in a set", "no fields", "a function"],
)
def test_an_object_is_described_by_its_fields_and_never_by_its_address(value: Any, described: Any) -> None:
    assert to_json(value, VALUE_LIMIT)[0] == described
