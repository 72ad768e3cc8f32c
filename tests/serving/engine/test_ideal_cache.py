"""What an ideal prefix cache could give, beside one that is simulated token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.capacity import CacheConfig
from serving.engine.ideal_cache import Chain, IdealCache, Lookup

ATTENTION = CacheConfig(block_size=4, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=4)
HYBRID = CacheConfig(12, 100, True, 4, hybrid=True)
COARSE = CacheConfig(12, 100, True, 12, hybrid=True)
UNCACHED = CacheConfig(4, 100, False, 4)


@dataclass
class SimulatedCache:
    """An engine's cache as the prefixes, in full, at whose ends it keeps its state."""

    config: CacheConfig
    kept: dict[tuple[int, ...], None] = field(default_factory=dict)
    """The one that was used last is the last one."""
    room: int | None = None
    """Number of states before the oldest are evicted."""

    def compute(self, prompt: list[int]) -> int:
        """Compute a prompt; returns the tokens of it that were cached."""
        whole, unit = tuple(prompt), self.config.match_unit
        hits = (end for end in range(unit, len(whole), unit) if whole[:end] in self.kept)
        cached = max(hits, default=0)
        self._keep(whole, cached, (len(whole) - 1) // unit * unit)
        return cached

    def generate(self, prompt: list[int], output: list[int]) -> None:
        """Generate after it."""
        self._keep((*prompt, *output)[:-1])

    def _keep(self, known: tuple[int, ...], *ends: int) -> None:
        block = self.config.block_size
        for end in (*range(block, len(known) + 1, block), *ends):
            if end:
                self.kept.pop(known[:end], None)
                self.kept[known[:end]] = None
        if self.room is not None:
            for oldest in list(self.kept)[: -self.room]:
                del self.kept[oldest]


def ids(most: int) -> st.SearchStrategy[list[int]]:
    """Few tokens to choose from, so that much is shared."""
    return st.lists(st.integers(0, 1), min_size=1, max_size=most)


configs = st.sampled_from([ATTENTION, HYBRID, COARSE])
requests = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 60), ids(30), ids(15)), max_size=12)


@given(configs, requests)
def test_one_after_another_it_is_what_a_cache_without_limits_gives(
    config: CacheConfig, requests: list[tuple[int, int, list[int], list[int]]]
) -> None:
    engine, ideal, known = SimulatedCache(config), IdealCache(config), [[]]
    for which, kept, new, output in requests:
        prompt = known[which % len(known)][:kept] + new  # an earlier one goes on, from somewhere
        lookup = Chain(ideal, "").send(prompt)
        assert lookup.cacheable == engine.compute(prompt)
        engine.generate(prompt, output)
        lookup.answered(output)
        known.append(prompt + output)


@given(configs, st.lists(ids(40), min_size=2, max_size=8), st.data())
def test_no_engine_gives_more_in_whatever_order_it_computes_what_is_in_flight(
    config: CacheConfig, prompts: list[list[int]], data: st.DataObject
) -> None:
    engine, ideal = SimulatedCache(config), IdealCache(config)
    waiting: list[tuple[list[int], Lookup]] = []
    while prompts or waiting:
        if prompts and (not waiting or data.draw(st.booleans())):
            prompt = prompts.pop()
            waiting.append((prompt, Chain(ideal, "").send(prompt)))
        else:
            prompt, lookup = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            cached = engine.compute(prompt)
            if data.draw(st.booleans()):  # it is short of blocks
                engine.kept.clear()
            assert cached <= lookup.cacheable
            lookup.answered([2])


@pytest.mark.parametrize(
    ("config", "cacheable"),
    [(ATTENTION, 48), (HYBRID, 48), (COARSE, 48), (UNCACHED, 0)],
)
def test_the_last_token_of_a_prompt_is_computed_always(config: CacheConfig, cacheable: int) -> None:
    ideal = IdealCache(config)
    Chain(ideal, "").send([1] * 60).answered([1])
    assert Chain(ideal, "").send([1] * 49).cacheable == cacheable
    assert Chain(ideal, "").send([1] * 48).cacheable == max(0, cacheable - config.block_size)


def test_the_states_of_any_number_of_conversations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engine.ideal_cache.MOST_STATES", 500)
    ideal = IdealCache(ATTENTION)
    old = Chain(ideal, "")
    old.send([0] * 40).answered([0])
    for number in range(1, 1001):
        shared = [0] * 20
        lookup = Chain(ideal, "").send(shared + [number] * 100)
        assert lookup.cacheable == 20
        lookup.answered([number] * 9)
        assert len(ideal.kept) + len(ideal.older) < 2 * (500 + 40)
    assert Chain(ideal, "").send([1] * 40).cacheable == 0  # it is not what was sent
    # Of the first conversation, only this is used.
    assert Chain(ideal, "").send([0] * 20 + [1] * 100).cacheable == 20
    assert old.send([0] * 60).cacheable == 20
