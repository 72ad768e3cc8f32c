"""Faults and limits in the middle of a run: what is tried again, what stops it, what is kept."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from serving.errors import EngineDead, SpendingCapReached
from serving.usage import Usage
from speedrunner.executor import RunStopped
from speedrunner.records import Ending
from tests.scripted_engine import (
    DROP,
    HANG,
    Answer,
    Request,
    overflow,
    refuse,
)
from tests.scripted_runs import (
    LEARN,
    PLANNED,
    Runs,
    check_whole,
    flag,
    keys,
    script,
    walker,
)

BROKEN = refuse(404, "no such thing")
"""An answer that no further try would mend: a fault of ours."""


class TestGoingOnAllTheSame:
    async def test_a_sleep_whose_context_overflows_changes_nothing(self, corridor: Runs) -> None:
        run = corridor(script(walker, (*LEARN, overflow())))
        await run.play()
        check_whole(run)
        assert [record.error for record in run.data.sleeps] == ["the context of inducer overflowed"] * 2
        assert all(not run.data.policies.load(version).skills for version in range(3))
        assert {row.status for row in run.data.requests if row.labels["phase"] == "sleep"} == {
            "ok",
            "overflow",
        }

    async def test_an_environment_that_breaks_is_a_fault_and_the_run_goes_on(self, corridor: Runs) -> None:
        run = corridor(script(), "env=tests.odd_envs:Collapsing")
        await run.play()
        train = [row for row in run.data.episodes if row.phase == "train"]
        assert {(row.ending, row.score, row.attempt) for row in train} == {
            (Ending.ENVIRONMENT_ERROR, None, 1)
        }
        assert {row.ending for row in run.data.episodes if row.phase == "test"} == {Ending.SUCCESS}
        broken = run.data.trajectories()[0]
        assert "the floor broke" in str(broken.error)
        assert broken.turns[-1].call is not None
        assert broken.turns[-1].executed is None


class Failing:
    """An actor whose engine fails the first tries of some episodes."""

    def __init__(self, **failures: int) -> None:
        self.left = {int(name.removeprefix("flag")): count for name, count in failures.items()}

    def __call__(self, request: Request) -> Answer:
        number = flag(request)
        if request.turn == 1 and self.left.get(number, 0):
            self.left[number] -= 1
            return BROKEN
        return walker(request)


class TestFaults:
    async def test_a_held_out_episode_is_tried_once_more(self, corridor: Runs) -> None:
        run = corridor(script(Failing(flag7=1, flag8=2)), "run.rollouts=0")
        await run.play()
        again, lost = sorted(run.data.episodes, key=lambda row: row.episode)
        assert (again.ending, again.attempt, again.score) == (Ending.SUCCESS, 2, 1.0)
        assert (lost.ending, lost.attempt, lost.score) == (Ending.ENGINE_ERROR, 2, None)
        assert "test/0000/0000 ended by engine_error; it is tried once more" in run.printed
        (played,) = (each for each in run.data.evaluations() if each.episode == "test/0000/0001")
        assert "RequestRefused: status 404: no such thing" in str(played.error)
        wasted = [row for row in run.data.requests if row.wasted]
        assert Counter((row.labels["episode"], row.labels["attempt"]) for row in wasted) == {
            ("test/0000/0000", "1"): 2,  # the turn before the fault, and the fault
            ("test/0000/0001", "1"): 2,
            ("test/0000/0001", "2"): 1,
        }

    async def test_a_training_episode_is_not_played_again_and_stays_unscored(self, corridor: Runs) -> None:
        run = corridor(script(Failing(flag4=1)))
        await run.play()
        check_whole(run)
        (lost,) = (row for row in run.data.episodes if row.ending.is_fault)
        assert (lost.episode, lost.attempt, lost.score, lost.success) == ("train/0001", 1, None, None)

    async def test_a_lost_connection_is_no_fault_when_the_next_try_succeeds(self, corridor: Runs) -> None:
        dropped: list[Request] = []

        def actor(request: Request) -> Answer:
            if flag(request) == 3 and request.turn == 1 and not dropped:
                dropped.append(request)
                return DROP
            return walker(request)

        run = corridor(script(actor))
        balance = await run.play()
        check_whole(run)
        assert {row.ending for row in run.data.episodes} == {Ending.SUCCESS}
        (lost,) = (row for row in run.data.requests if row.wasted)
        assert (lost.status, lost.retry, lost.labels["episode"]) == ("failed", 0, "train/0000")
        assert balance is not None
        assert balance.unreported == 1

    async def test_five_in_a_row_stop_the_run_and_it_goes_on_when_they_are_mended(
        self, corridor: Runs
    ) -> None:
        run = corridor(
            script(lambda request: BROKEN), "env.train=8", "run.rollouts=8", "run.sleep_every=8",
            "run.eval_every=8", "run.test_episodes=1", "run.in_flight=1",
        )  # fmt: skip
        run.server.script = script(lambda request: BROKEN if flag(request) < 11 else walker(request))
        with pytest.raises(RunStopped) as stopped:
            await run.play()
        assert str(stopped.value) == (
            "5 episodes in a row ended by a fault of ours, the last, train/0004, by engine_error:"
            " serving.errors.RequestRefused: status 404: no such thing"
        )
        assert [row.ending for row in run.data.episodes if row.phase == "train"] == [Ending.ENGINE_ERROR] * 5
        run.server.script = script()
        await run.play()
        rows = {row.episode: row for row in run.data.episodes}
        assert len(rows) == len(run.data.episodes) == 10
        assert [rows[f"train/{number:04d}"].score for number in range(8)] == [None] * 5 + [1.0] * 3

    async def test_an_episode_that_ends_well_breaks_the_row(self, corridor: Runs) -> None:
        faulty = [n for n in range(3, 11) if n != 7]

        def actor(request: Request) -> Answer:
            return BROKEN if flag(request) in faulty else walker(request)

        run = corridor(
            script(actor), "env.train=8", "run.rollouts=8", "run.sleep_every=8", "run.test_episodes=0",
            "run.in_flight=1",
        )  # fmt: skip
        await run.play()
        assert sum(row.ending.is_fault for row in run.data.episodes) == 7

    async def test_a_dead_engine_stops_the_run_and_it_goes_on_with_another(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))

        def die(request: Request) -> Answer:
            if flag(request) == 5:  # in the second batch
                threading.Thread(target=run.server.stop).start()
                return HANG
            return walker(request)

        run.server.script = script(die, LEARN)
        with pytest.raises(EngineDead, match=r"the engine at http://127\.0\.0\.1:\d+/v1 is gone"):
            await run.play()
        before = keys(run.data)
        run.server.script = script(walker, LEARN)
        run.server.restart()
        await run.play()
        check_whole(run)
        assert set(before) < set(PLANNED)


class TestSpendingCap:
    async def test_it_stops_the_run_which_goes_on_under_a_higher_one(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))
        with pytest.raises(SpendingCapReached, match=r"over the cap of 0\.0060 USD \(serving\.spending_cap"):
            await run.play("serving.spending_cap_usd=0.006")
        total = sum((row.usage or Usage() for row in run.data.requests), Usage())
        assert 0.001 < run.card.prices.cost(total) <= 0.006
        assert 0 < len(keys(run.data)) < len(PLANNED)
        await run.play("serving.spending_cap_usd=1")
        check_whole(run)
