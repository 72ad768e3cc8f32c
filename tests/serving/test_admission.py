"""Who may be in the prefix cache, and who waits: by age, without deadlock, without starvation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.admission import Replica, Slot, replicas_of
from serving.engine.capacity import HYBRID_EXTRA_BLOCKS, CacheConfig
from tests.processes import HANGS_S


def cache(blocks: int, *, hybrid: bool = False) -> CacheConfig:
    """A cache of so many usable blocks of ten tokens."""
    return CacheConfig(10, blocks + 1, True, 10, hybrid=hybrid)


async def asks(slot: Slot, tokens: int) -> asyncio.Task[float]:
    """Let a conversation of `tokens` ask for its next request."""
    task = asyncio.create_task(slot.enter(tokens))
    await asyncio.sleep(0)
    return task


async def test_a_newcomer_leaves_room_to_grow_and_comes_in_when_someone_leaves() -> None:
    replica = Replica(cache(10), admission=True)
    first, second = replica.slot(), replica.slot()
    await first.enter(60)
    waits = await asks(second, 40)  # 10 of 10 blocks: nobody could grow
    assert (waits.done(), replica.waiting) == (False, 1)
    first.leave()
    assert await waits > 0
    assert replica.waiting == 0


async def test_when_residents_outgrow_the_cache_the_youngest_waits_at_its_next_turn() -> None:
    replica = Replica(cache(10), admission=True)
    old, young = replica.slot(), replica.slot()
    await old.enter(40)
    old.pause()
    await young.enter(40)
    young.pause()
    await old.enter(70)  # 7 + 4 blocks
    waits = await asks(young, 45)
    assert not waits.done()
    old.pause()
    await asyncio.sleep(0)
    assert not waits.done()  # the old one is still there, only between two turns
    old.leave()
    assert await waits > 0


async def test_the_oldest_goes_on_even_when_it_alone_outgrows_the_cache() -> None:
    replica = Replica(cache(10), admission=True)
    slot = replica.slot()
    assert await slot.enter(1000) == 0.0
    slot.pause()
    assert not (await asks(replica.slot(), 10)).done()  # it keeps its slot between two turns


@pytest.mark.parametrize("replica", [Replica(admission=True), Replica(cache(10), admission=False)])
async def test_without_a_queue_everyone_is_let_in(replica: Replica) -> None:
    slots = [replica.slot() for _ in range(3)]
    assert [await slot.enter(90) for slot in slots] == [0.0, 0.0, 0.0]
    assert (replica.admitted_blocks, replica.waiting) == (0, 0)


def test_replicas_are_numbered_and_a_single_one_needs_no_address() -> None:
    one, two = cache(10), cache(20)
    for caches, expected in (
        ([], [(None, 0, None, 0)]),
        ([one], [(one, 0, None, 10)]),
        ([one, two], [(one, 0, 0, 10), (two, 1, 1, 20)]),
    ):
        replicas = replicas_of(caches, admission=False)
        assert [(each.cache, each.number, each.address, each.capacity) for each in replicas] == expected
    for admission in (True, False):
        assert replicas_of([one], admission=admission)[0].admission == admission


async def test_nobody_overtakes_an_older_one_that_waits() -> None:
    replica = Replica(cache(10), admission=True)
    inside, large, small = (replica.slot() for _ in range(3))
    await inside.enter(50)
    large_waits = await asks(large, 90)
    small_waits = await asks(small, 10)  # would fit
    assert not small_waits.done()
    inside.leave()
    await large_waits
    assert not small_waits.done()  # nine blocks and one: no room to grow is left
    large.leave()
    await small_waits


PREFIX = tuple(range(45))
"""Four blocks and a half."""


async def test_those_that_wait_for_conversations_of_their_own_stand_in_nobodys_way() -> None:
    replica = Replica(cache(10), admission=True)

    async def outer() -> None:
        slot = replica.slot()
        for _ in range(3):
            await slot.enter(40)
            slot.rest()
            inner = replica.slot()
            await inner.enter(50)
            await asyncio.sleep(0)
            inner.leave()
        slot.leave()

    async with asyncio.timeout(HANGS_S):
        await asyncio.gather(*(outer() for _ in range(5)))
    assert not replica.slots


async def test_a_hybrid_models_conversation_holds_blocks_beyond_its_tokens() -> None:
    replica = Replica(cache(100, hybrid=True), admission=True)
    await replica.slot().enter(50)
    assert replica.admitted_blocks == 5 + HYBRID_EXTRA_BLOCKS


@given(
    blocks=st.integers(2, 30),
    lives=st.lists(
        st.lists(st.tuples(st.integers(1, 120), st.integers(0, 3)), min_size=1, max_size=6),
        min_size=1,
        max_size=12,
    ),
)
def test_every_conversation_ends_however_they_grow(blocks: int, lives: list[list[tuple[int, int]]]) -> None:
    """Each life is a list of turns: by how many tokens it grows, and how long its request takes."""
    replica = Replica(cache(blocks), admission=True)

    def fits() -> bool:
        admitted_slots = [each for each in replica.slots if each.admitted]
        shared = 2 if admitted_slots else 0
        assert replica.admitted_blocks == sum((each.blocks for each in admitted_slots), shared)
        busy = any(each.busy for each in admitted_slots)
        return busy or len(admitted_slots) <= 1 or replica.admitted_blocks <= replica.capacity

    async def live(turns: list[tuple[int, int]]) -> None:
        slot, tokens = replica.slot(PREFIX[:20]), 0
        for grows, steps in turns:
            tokens += grows
            await slot.enter(tokens)
            for _ in range(steps):
                await asyncio.sleep(0)
            slot.pause()
            assert fits()
            await asyncio.sleep(0)
        slot.leave()

    async def everybody() -> None:
        async with asyncio.timeout(HANGS_S):
            await asyncio.gather(*(live(turns) for turns in lives))

    asyncio.run(everybody())
    assert (replica.slots, replica.waiting, replica.admitted_blocks) == ([], 0, 0)
