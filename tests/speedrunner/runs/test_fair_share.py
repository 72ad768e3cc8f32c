"""Slots that several runs share: as many as there are, and equally many for those that want more."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from speedrunner.runs.fair_share import FairShare
from tests.processes import HANGS_S


class Played:
    """Runs that want to play all the time; each `step` ends the episode that has gone on longest."""

    def __init__(self, share: FairShare, **wanted: int) -> None:
        self.share = share
        self.playing: list[tuple[str, asyncio.Event]] = []
        self.tasks = [
            asyncio.create_task(self.play(run)) for run, many in wanted.items() for _ in range(many)
        ]

    async def play(self, run: str) -> None:
        while True:
            async with self.share.slot(run):
                done = asyncio.Event()
                self.playing.append((run, done))
                await done.wait()

    async def step(self) -> None:
        self.playing.pop(0)[1].set()
        for _ in range(4):  # the next one begins
            await asyncio.sleep(0)

    @property
    def shares(self) -> Counter[str]:
        return Counter(run for run, _ in self.playing)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("slots", "wanted", "shares"),
    [
        (6, {"a": 60, "b": 3}, {"a": 3, "b": 3}),
        (6, {"a": 60, "b": 2}, {"a": 4, "b": 2}),  # what one leaves, the other has
        (6, {"a": 3, "b": 60, "c": 60}, {"a": 2, "b": 2, "c": 2}),
        (6, {"a": 2, "b": 2}, {"a": 2, "b": 2}),
        (None, {"a": 60, "b": 3}, {"a": 60, "b": 3}),
    ],
)
async def test_runs_come_to_have_equally_many(
    slots: int | None, wanted: dict[str, int], shares: dict[str, int]
) -> None:
    played = Played(FairShare(slots), **wanted)
    await asyncio.sleep(0)
    for _ in range(20):
        await played.step()
        assert slots is None or len(played.playing) <= slots
    assert played.shares == shares
    await played.end()


async def test_one_that_gives_up_waiting_leaves_no_slot_taken() -> None:
    share = FairShare(1)
    async with share.slot("a"):
        waiting = [asyncio.create_task(_held(share)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(HANGS_S), share.slot("b"):
        pass


async def test_one_that_is_cancelled_as_it_gets_a_slot_hands_it_on() -> None:
    share = FairShare(1)
    async with share.slot("a"):
        first, second = (asyncio.create_task(_held(share)) for _ in range(2))
        await asyncio.sleep(0)
    first.cancel()  # the slot is its own already
    async with asyncio.timeout(HANGS_S):
        await second
    assert first.cancelled()


async def _held(share: FairShare) -> None:
    async with share.slot("b"):
        pass
