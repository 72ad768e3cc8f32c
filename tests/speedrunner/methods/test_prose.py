"""Prose: SpeedRunner's inducer writes notes, which the actor reads."""

from __future__ import annotations

import pytest

from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, check_whole

CODE = 'print([play["outcome"]["score"] for play in load_trajectories()])'


def writer(request: Request) -> Answer:
    """Analyse, write, correct, and finish; the actor walks."""
    if "edit_notes" not in request.tools:
        return call("walk", steps=9)
    steps = (
        call("execute_code", code=CODE),
        call("write_notes", text="Walk to the wall."),
        call("edit_notes", old="door", new="flag"),
        call("edit_notes", old="wall", new="flag"),
        call("finish", summary="Where to walk."),
    )
    return steps[min(request.turn, 4)]


async def test_an_inducer_with_an_interpreter_writes_what_the_actor_reads(corridor: Runs) -> None:
    run = corridor(writer)
    await run.play("method=prose")
    check_whole(run)
    last = [request for request in run.server.requests if "edit_notes" in request.tools][-1]
    assert list(last.tools) == ["execute_code", "write_notes", "edit_notes", "finish"]
    (inducer,) = run.data.sleeps[-1].agents
    replies = [turn.messages[0].content for turn in inducer.turns[1:]]
    assert replies[0].startswith("[1.0, 1.0, 1.0, 1.0]\n")
    assert replies[2].startswith("Error: the old text occurs 0 times in the notes, and it must occur once")
    assert "The actor's tools:\n- walk(" in last.system
    policy = run.data.policies.load(2)
    assert (policy.notes, policy.skills) == ("Walk to the flag.", ())
    acting = [request for request in run.server.requests if "walk" in request.tools]
    assert "Walk to the flag." in acting[-1].system
    assert [sleep.changed for sleep in run.data.sleeps] == ["notes rewritten"] * 2


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_notes_beyond_their_limit_are_refused(corridor: Runs, api: str) -> None:
    """Each call fits, but not what edits add up to. Without a tokenizer, a token is four bytes."""
    long = "walk " * 1000

    def verbose(request: Request) -> Answer:
        if "edit_notes" not in request.tools:
            return call("walk", steps=9)
        write, edit = call("write_notes", text=f"{long}X"), call("edit_notes", old="X", new=f"{long}{long}X")
        return (write, edit, call("finish", summary="Walk."))[min(request.turn, 2)]

    run = corridor(verbose, api=api)
    await run.play("method=prose", "run.rollouts=2", "run.test_episodes=0")
    (sleep,) = run.data.sleeps
    refused = sleep.agents[0].turns[1].executed
    assert refused is not None
    assert "tokens, and they can have at most 3000" in str(refused.error)
    assert run.data.policies.load(1).notes == f"{long}X"
