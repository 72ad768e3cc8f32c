"""`method.guard=heldback`: new training tasks decide whether an edited library is adopted."""

from __future__ import annotations

import math

import pytest

from speedrunner.methods.speedrunner.speedrunner_method import standard_error
from speedrunner.runs.executor import RunStopped
from speedrunner.store.records import Termination
from tests.scripted_engine import Answer, Request, call, refuse
from tests.scripted_runs import TO_FLAG, Runs, check_ledger, flag, script

GUARDED = ("method=speedrunner", "method.guard=heldback", "method.guard_episodes=2")
SHORT = ("run.rollouts=2", "run.sleep_every=2", "run.test_episodes=0")
TO_PIT = TO_FLAG.replace("steps=flag - field", 'steps=9, direction="left"')


def actor(request: Request) -> Answer:
    return call("to_flag") if "to_flag" in request.tools else call("walk", steps=9)


@pytest.mark.parametrize(("source", "adopted"), [(TO_FLAG, True), (TO_PIT, False)])
async def test_a_library_that_does_worse_on_new_tasks_is_not_adopted(
    corridor: Runs, source: str, adopted: bool
) -> None:
    run = corridor(script(actor, (call("write_skill", source=source, public=True),)), *GUARDED, *SHORT)
    await run.play()
    (sleep,) = run.data.sleeps
    assert [skill.name for skill in run.data.policies.load(1).skills] == ["to_flag"] * adopted
    assert [each.task.index for each in sorted(sleep.attempts, key=lambda each: each.episode)] == [5, 6]
    assert {each.termination for each in sleep.attempts} == {
        Termination.SUCCESS if adopted else Termination.FAILURE
    }
    assert {edit.error is None for edit in sleep.edits} == {adopted}
    why = "the edited library was not adopted: it scored 0.000 on 2 new tasks, the previous library 1.000 on"
    assert (sleep.error is None) if adopted else str(sleep.error).startswith(why)
    check_ledger(run.data)


async def test_nothing_is_played_where_nothing_was_edited(corridor: Runs) -> None:
    run = corridor(script(actor), *GUARDED, *SHORT)
    await run.play()
    assert run.data.sleeps[0].attempts == []


async def test_new_tasks_are_no_rollouts_and_no_later_sleep_gets_them(corridor: Runs) -> None:
    run = corridor(script(actor, (call("write_skill", source=TO_FLAG, public=True),)), *GUARDED, *SHORT)
    await run.play("run.sleep_every=1", "env.train=6")
    tasks = sorted(each.task.index for sleep in run.data.sleeps for each in sleep.attempts)
    assert tasks == [5, 6]  # the second sleep changes nothing
    assert [flag(request) for request in run.server.requests if flag(request) > 6] == []
    assert len(run.data.trajectories()) == 2


async def test_a_fault_ends_the_other_episodes_before_the_run_stops(corridor: Runs) -> None:
    def broken(request: Request) -> Answer:
        return refuse(400, "no") if "to_flag" in request.tools and flag(request) == 5 else actor(request)

    run = corridor(script(broken, (call("write_skill", source=TO_FLAG, public=True),)), *GUARDED, *SHORT)
    with pytest.raises(RunStopped, match=r"twice, sleep/0001/again/0000 \(task default 5\) ended by"):
        await run.play()
    before = len(run.server.requests)
    run.server.script = script(actor, (call("write_skill", source=TO_FLAG, public=True),))
    await run.play()
    assert run.data.policies.versions() == [0, 1]
    assert len(run.server.requests) > before


def test_too_few_new_tasks_are_told_before_anything_starts(corridor: Runs) -> None:
    done = corridor(script(actor), *GUARDED).cli()
    assert done.stderr == (
        "error: the method takes 2 new training tasks in each of 2 sleeps, in addition to run.rollouts=4, but"
        " the environment's split has only 4: lower one of them\n"
    )


@pytest.mark.parametrize(
    ("samples", "error"),
    [(([0.0, 1.0], [1.0, 1.0]), 0.5), (([1.0, 1.0], [0.0, 0.0, 3.0]), 1.0), (([1.0], [0.0, 1.0]), math.inf)],
)
def test_the_standard_error_of_a_difference(samples: tuple[list[float], ...], error: float) -> None:
    assert standard_error(*samples) == pytest.approx(error)
