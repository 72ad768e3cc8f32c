"""Faults and limits in the middle of a run: what is tried again, what stops it, what is kept."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace

import pytest

from serving.errors import EngineDead, ServingError, SpendingCapReached
from serving.usage import Usage
from speedrunner.runs.executor import RunStopped
from speedrunner.store.discovery import runs_below
from speedrunner.store.records import Labels, Termination
from tests.scripted_engine import BLOCK, HANG, Answer, Request, refuse
from tests.scripted_runs import (
    LEARN,
    PLANNED,
    Runs,
    ScriptedRun,
    check_whole,
    flag,
    keys,
    script,
    walker,
)

BROKEN = refuse(404, "no such thing")
"""An answer that no further try would mend: an infrastructure error."""


async def test_an_environment_that_breaks_is_a_fault_and_the_run_goes_on(corridor: Runs) -> None:
    run = corridor(script(), "env=tests.odd_envs:Collapsing")
    await run.play()
    train = [row for row in run.data.episodes if row.phase == "train"]
    assert {(row.termination, row.score, row.attempt) for row in train} == {
        (Termination.ENVIRONMENT_ERROR, None, 1)
    }
    assert {row.termination for row in run.data.episodes if row.phase == "test"} == {Termination.SUCCESS}
    broken = run.data.trajectories()[0]
    assert "the floor broke" in str(broken.error)
    assert broken.turns[-1].call is not None
    assert broken.turns[-1].executed is None
    assert (
        "train/0000 (task broken_step 7) ended by environment_error: environment"
        " tests.odd_envs:Collapsing: walk failed: RuntimeError: the floor broke"
    ) in run.printed


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


async def test_a_refused_first_request_stops_the_run_with_the_provider_s_words(corridor: Runs) -> None:
    run = corridor(
        script(lambda request: refuse(400, "tools are not supported")), "run.in_flight=1", api="chat"
    )
    with pytest.raises(EngineDead, match=r"refuses the first request: status 400: tools are not supported"):
        await run.play()
    assert run.data.episodes == []


async def test_a_later_refusal_ends_its_episode_which_is_counted_apart(corridor: Runs) -> None:
    def actor(request: Request) -> Answer:
        return refuse(400, "flagged") if flag(request) == 8 and request.turn else walker(request)

    run = corridor(script(actor), "run.rollouts=0", api="chat")
    await run.play()
    played, refused = sorted(run.data.episodes, key=lambda row: row.episode)
    assert (played.score, refused.score) == (1.0, None)
    assert refused.termination is Termination.REFUSED
    assert "status 400: flagged" in str(run.data.trajectory("test/0000/0001").error)


async def test_a_sleep_that_is_refused_changes_nothing_and_the_run_goes_on(corridor: Runs) -> None:
    def school(request: Request) -> Answer:
        return refuse(400, "flagged") if "write_notes" in request.tools else walker(request)

    run = corridor(script(school), "method=opo", "run.test_episodes=0", api="chat")
    await run.play()
    assert ["status 400: flagged" in str(sleep.error) for sleep in run.data.sleeps] == [True, True]
    assert run.data.policies.load(2).notes == ""


class TestFaults:
    async def test_a_held_out_episode_is_tried_once_more(self, corridor: Runs) -> None:
        run = corridor(script(Failing(flag7=1, flag8=2)), "run.rollouts=0")
        await run.play()
        again, lost = sorted(run.data.episodes, key=lambda row: row.episode)
        assert (again.termination, again.attempt, again.score) == (Termination.SUCCESS, 2, 1.0)
        assert (lost.termination, lost.attempt, lost.score) == (Termination.ENGINE_ERROR, 2, None)
        why = "engine: status 404: no such thing"
        assert f"test/0000/0000 ended by engine_error ({why}); retrying it once" in run.printed
        (played,) = (each for each in run.data.evaluations() if each.episode == "test/0000/0001")
        assert "RequestRefused: status 404: no such thing" in str(played.error)
        wasted = [row for row in run.data.requests if row.wasted]
        assert Counter((row.labels["episode"], row.labels["attempt"]) for row in wasted) == {
            ("test/0000/0000", "1"): 2,  # the turn before the fault, and the fault
            ("test/0000/0001", "1"): 2,
            ("test/0000/0001", "2"): 1,
        }

    async def test_five_in_a_row_stop_the_run_and_it_goes_on_when_they_are_mended(
        self, corridor: Runs
    ) -> None:
        def actor(request: Request) -> Answer:
            if flag(request) < 8:
                return BROKEN
            # The sixth may begin while the fifth is stored, and does not end before the run is stopped.
            return HANG if flag(request) < 11 else walker(request)

        run = corridor(
            script(actor), "env.train=8", "run.rollouts=8", "run.sleep_every=8", "run.eval_every=8",
            "run.test_episodes=1", "run.in_flight=1",
        )  # fmt: skip
        with pytest.raises(RunStopped) as stopped:
            await run.play()
        assert str(stopped.value) == (
            "5 episodes in a row ended by an infrastructure error; the last: train/0004 (task default"
            " 7) ended by engine_error: engine: status 404: no such thing; its traceback: speedrunner"
            f" show {run.dir} train/0004; fix it and resume with run.retry_faults=true to replay these"
            " episodes"
        )
        assert [row.termination for row in run.data.episodes if row.phase == "train"] == [
            Termination.ENGINE_ERROR
        ] * 5
        run.server.script = script()
        for again, scores, attempts in ((False, [None] * 5, 1), (True, [1.0] * 5, 2)):
            copy = run.copy()
            await copy.play(f"run.retry_faults={again}")
            rows = {row.episode: row for row in copy.data.episodes}
            assert len(rows) == len(copy.data.episodes) == 10
            train = [rows[f"train/{number:04d}"] for number in range(8)]
            assert [row.score for row in train] == [*scores, 1.0, 1.0, 1.0]
            assert [row.attempt for row in train[:5]] == [attempts] * 5
            assert [row.checkpoint for row in train] == [0] * 8
            played = copy.data.trajectories()
            assert sorted((each.episode, each.attempt) for each in played) == [
                (row.episode, row.attempt) for row in train
            ]
            wasted = {row.labels["episode"] for row in copy.data.requests if row.wasted}
            assert wasted >= {f"train/{number:04d}" for number in range(5)}

    async def test_held_out_ones_of_a_finished_run_are_played_again_when_that_is_asked_for(
        self, corridor: Runs
    ) -> None:
        run = corridor(script(Failing(flag4=1, flag7=6)))  # two tries at each of the three checkpoints
        await run.play()
        held_out = {"test/0000/0000": 0, "test/0002/0000": 1, "test/0004/0000": 2}
        lost = {row.episode for row in run.data.episodes if row.termination.is_fault}
        assert lost == {"train/0001", *held_out}
        await run.play()
        assert "nothing to play" in run.printed
        await run.play("run.retry_faults=true")
        check_whole(run)  # a sleep has used the training episode's batch
        (trained,) = (row for row in run.data.episodes if row.termination.is_fault)
        assert (trained.episode, trained.attempt) == ("train/0001", 1)
        assert (trained.score, trained.success) == (None, None)
        again = [row for row in run.data.episodes if row.episode in held_out]
        assert {row.episode: row.policy for row in again} == held_out
        assert [(row.attempt, row.score) for row in again] == [(3, 1.0)] * 3
        await run.play("run.retry_faults=true")
        assert "nothing to play" in run.printed

    async def test_a_dead_engine_stops_the_run_and_it_goes_on_with_another(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))

        def die(request: Request) -> Answer:
            if flag(request) == 5:  # in the second batch
                threading.Thread(target=run.server.stop).start()
                return HANG
            return walker(request)

        run.server.script = script(die, LEARN)
        with pytest.raises(EngineDead, match=r"the engine at http://127\.0\.0\.1:\d+/v1 is gone"):
            await run.play("serving.outage_timeout_s=0.1")
        before = keys(run.data)
        run.server.script = script(walker, LEARN)
        run.server.restart()
        await run.play()
        check_whole(run)
        assert set(before) < set(PLANNED)


async def test_a_refused_start_leaves_no_run_and_the_same_folder_can_be_used(corridor: Runs) -> None:
    run = corridor(script(walker, LEARN))
    with pytest.raises(ServingError, match=r"127\.0\.0\.1:9"):
        await run.play("serving.url=http://127.0.0.1:9/v1")
    assert runs_below(run.folder) == []
    await run.play()
    check_whole(run)


async def test_a_spending_cap_stops_the_run_which_goes_on_under_a_higher_one(corridor: Runs) -> None:
    run = corridor(script(walker, LEARN), api="chat")
    with pytest.raises(SpendingCapReached, match=r"over the cap of 0\.0300 USD \(serving\.spending_cap"):
        await run.play("serving.spending_cap_usd=0.03")
    total = sum((row.usage or Usage() for row in run.data.requests), Usage())
    assert 0.001 < run.model_config.prices.cost(total) <= 0.03
    assert 0 < len(keys(run.data)) < len(PLANNED)
    await run.play("serving.spending_cap_usd=1")
    check_whole(run)


async def test_a_slow_evaluation_keeps_nobody_waiting_and_plays_the_policy_of_its_checkpoint(
    corridor: Runs,
) -> None:
    released = threading.Event()

    def actor(request: Request) -> Answer:
        if flag(request) >= 7 and "to_flag" not in request.tools:  # test episodes of the empty library
            return replace(walker(request), after=released)
        return walker(request)

    def answer(request: Request) -> Answer:
        if "write_skill" in request.tools:
            released.set()  # the first evaluation waits until the sleep after the first wake
        return script(actor, LEARN)(request)

    run = corridor(answer, "run.in_flight=4")
    await run.play()
    check_whole(run)
    state = json.loads((run.dir / "state.json").read_text())["finished"]
    names = [step.rpartition("-")[0] for step in state]
    assert names.index("wake/0000") < names.index("evaluate/0000")
    by_checkpoint = {
        checkpoint: {episode.policy for episode in run.data.evaluations(checkpoint)}
        for checkpoint in (0, 2, 4)
    }
    assert by_checkpoint == {0: {0}, 2: {1}, 4: {2}}
    tools = {
        (request.task, "to_flag" in request.tools)
        for request in run.server.requests
        if "write_skill" not in request.tools
    }
    assert len(tools) > len({task for task, _ in tools})  # the same tasks with both libraries


def test_each_sleep_says_what_it_left_of_the_prefix_that_all_episodes_share(learnt: ScriptedRun) -> None:
    first, second = (record.prefix for record in learnt.data.sleeps)
    assert first is not None
    assert second is not None
    # The skill's tool stands behind the primitives': what comes before it stays.
    assert 0 < first.common < first.before < first.after
    # Nothing was changed by the second one: there was nothing to send.
    assert second.before == second.after == second.common == first.after
    requests = learnt.data.requests
    prefix_warm_ups = [row for row in requests if row.labels["role"] == "prefix_warm_up"]
    assert [Labels.of(row.labels).policy for row in prefix_warm_ups] == [0, 1]
    sent = prefix_warm_ups[1].usage
    assert sent is not None
    assert sent.prompt == first.after
    assert 0 <= first.common - sent.cached < 2 * BLOCK
