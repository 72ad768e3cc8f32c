"""Online prompt optimisation: one answer per sleep rewrites the notes, which reach the actor as they are."""

from __future__ import annotations

from speedrunner.store.records import Termination
from tests.scripted_engine import Answer, Request, Script, call, say
from tests.scripted_runs import Runs, check_whole, flag


def optimizer(*notes: str) -> Script:
    """A script: each sleep writes the next notes; the actor walks, in the first world with a halt."""
    left = list(notes)

    def answer(request: Request) -> Answer:
        if "write_notes" in request.tools:
            return call("write_notes", text=left.pop(0))
        halts = flag(request) == 3 and request.turn == 0
        return call("walk", steps=1 if halts else 9) if request.tools else say("")

    return answer


async def test_actor_and_optimizer_read_notes_byte_for_byte_and_the_optimizer_whole_episodes(
    corridor: Runs,
) -> None:
    notes = "Mind {{ braces }} & <b>tags</b>:\n\n  1. walk\n  2. {% look %} 😀"
    run = corridor(optimizer(notes, notes))
    await run.play("method=opo")
    held_out = [each for each in run.server.requests if flag(each) == 7 and "walk" in each.tools]
    # At the second and the third checkpoint, which may be played side by side.
    assert sorted(f"\n\n{notes}\n\n# Tools" in each.system for each in held_out) == [False, True, True]
    check_whole(run)
    first, second = (each for each in run.server.requests if "write_notes" in each.tools)
    assert "There are no notes yet." in first.task
    assert first.task.count("You are at field 0.") == 2
    assert "train/0000: policy v0000, success, score 1" in first.task
    assert "walk(steps=9) -> You are at the flag." in first.task
    assert f"The current notes:\n\n{notes}" in second.task
    assert "train/0001" not in second.task
    assert "Walk to the flag at its right end" in first.system
    assert [len(agent.turns) for sleep in run.data.sleeps for agent in sleep.agents] == [1, 1]
    assert {agent.role for sleep in run.data.sleeps for agent in sleep.agents} == {"optimizer"}


async def test_empty_notes_are_refused_and_three_such_answers_change_nothing(corridor: Runs) -> None:
    run = corridor(optimizer(" ", "  Walk. ", *[""] * 3))
    await run.play("method=opo", "run.test_episodes=0")
    assert [run.data.policies.load(version).notes for version in range(3)] == ["", "Walk.", "Walk."]
    assert [sleep.changed for sleep in run.data.sleeps] == ["notes rewritten", ""]
    assert "notes rewritten" in run.printed
    assert "edits accepted" not in run.printed
    (agent,) = run.data.sleeps[1].agents
    assert (agent.termination, len(agent.turns)) == (Termination.CALL_LIMIT, 3)


async def test_a_batch_that_does_not_fit_changes_nothing(corridor: Runs) -> None:
    """The actor is told the beginning of what a walk tells; the optimizer would read all of it."""
    run = corridor(optimizer("Walk far."), context=12_000)
    await run.play("method=opo", "env.numbers=4000", "run.rollouts=2", "run.test_episodes=0")
    (sleep,) = run.data.sleeps
    assert run.data.policies.load(1).notes == ""
    assert str(sleep.error).startswith("the context of the optimizer overflowed")
    assert str(sleep.error) in run.printed
