from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from speedrunner.store.json_limits import DECODED_BYTES, decoded_bytes, find_excess


@pytest.mark.parametrize("value", ["[]", "[[]]", "{}", '{"":0}', '{"":{}}', "0.5", '"ab"'])
def test_the_count_is_no_less_than_what_is_taken(value):
    text = f"[{','.join([value] * 10_000)}]".encode()
    tracemalloc.start()
    decoded = msgspec.json.decode(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(decoded) == 10_000
    assert taken <= decoded_bytes(text, DECODED_BYTES)


def test_signs_within_texts_cost_nothing():
    text = b'{"text":"' + b'[{\\",:' * 1_000_000 + b'"}'
    assert decoded_bytes(text, DECODED_BYTES) < 2 * len(text)


@pytest.mark.parametrize(
    ("levels", "problem"), [(300, ""), (301, "nests lists and objects on more than 300 levels")]
)
def test_depth_is_limited_and_brackets_in_texts_do_not_count(levels, problem):
    text = b"[" * levels + b'"' + b"[" * 500 + b'\\"["' + b"]" * levels
    assert find_excess(text) == problem
