"""Prompts that are extended turn by turn equal prompts that are computed again."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.cache_config import CacheConfig
from serving.engine.ideal_cache import IdealCache, Lookup
from serving.engine.prompt import Prompt

ATTENTION = CacheConfig(block_size=4, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=4)
HYBRID = CacheConfig(12, 100, True, 4, hybrid=True)

turns = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=20), st.booleans()), min_size=1, max_size=8)


@given(st.lists(st.lists(st.integers(0, 250_000), max_size=5), max_size=5))
def test_its_json_is_that_of_all_ids(pieces: list[list[int]]) -> None:
    ids: list[int] = []
    prompt = Prompt(ids)
    for piece in pieces:
        ids += piece
        assert json.loads(b"[%b]" % prompt.json()) == ids
        assert json.loads(b"[%b]" % prompt.json()) == ids
        assert len(prompt) == len(ids)


@given(st.sampled_from([ATTENTION, HYBRID]), st.lists(st.tuples(st.integers(0, 2), turns), max_size=4))
def test_what_could_be_cached_is_the_same_turn_by_turn_as_request_by_request(
    config: CacheConfig, talks: list[tuple[int, list[tuple[list[int], bool]]]]
) -> None:
    """Requests of conversations, some of them refused, one after another."""
    whole, grown = IdealCache(config), IdealCache(config)
    for first, said in talks:
        ids = [first] * 10
        prompt = Prompt(ids, grown)
        for piece, refused in said:
            ids += piece
            one, other = looked_up(Prompt(ids, whole)), looked_up(prompt)
            assert one.cacheable == other.cacheable
            for lookup in (one, other):
                if refused:
                    lookup.refused()
                else:
                    lookup.answered([9, 9, 9, 9, 9])
            if not refused:
                ids += [9, 9, 9, 9, 9]


def looked_up(prompt: Prompt, salt: str = "") -> Lookup:
    lookup = prompt.look_up(salt)
    assert lookup is not None
    return lookup


def test_each_salt_has_a_cache_of_its_own() -> None:
    prompt = Prompt([1] * 20, IdealCache(ATTENTION))
    assert [looked_up(prompt, salt).cacheable for salt in ("a", "a", "b", "a")] == [0, 16, 0, 16]
