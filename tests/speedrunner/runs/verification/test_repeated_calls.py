"""Records that do not say what the calls in them come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from speedrunner.agents.reading import call_lines
from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.repeated_calls import KILLED, find_first_difference, repeat_calls
from speedrunner.store.records import CallNode
from speedrunner.workers.sandbox import skill_process
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, ScriptedRun, script, walker
from tests.tampered_runs import Change, change, copy_of, open_checked, told

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


async def replayed(run: Path) -> Finding:
    return await repeat_calls(open_checked(run), lambda line: None)


def call_of(record: Any) -> Any:
    """What the actor's first call in an episode came to."""
    return record["turns"][0]["executed"]


def last_of(record: Any) -> Any:
    """The last one: in these episodes the skill, where there is one."""
    return record["turns"][-1]["executed"]


CHANGES: dict[str, tuple[Change, str]] = {
    "result": (lambda it: call_of(it).update(result="You are elsewhere."), "turn 1: walk, result"),
    "error": (lambda it: call_of(it).update(error="E: no", result=None), "turn 1: walk, result"),
    "action count": (lambda it: call_of(it).update(actions=2), "turn 1: walk, actions"),
    "arguments": (lambda it: call_of(it)["arguments"].update(steps=2), "turn 1: walk, arguments"),
    "what was called": (lambda it: it["turns"][0]["call"]["arguments"].update(steps=2), "turn 1: walk, arg"),
    "what the actor read": (
        lambda it: it["turns"][1]["messages"][0].update(content="Run!"),
        "turn 1: the reply that the actor read",
    ),
    "first prompt": (
        lambda it: it["turns"][0]["messages"][0].update(content="Run!"),
        "turn 1: its messages are not those",
    ),
    "termination": (
        lambda it: it.update(termination="failure"),
        "its recorded termination is failure",
    ),
    "score": (lambda it: it["outcome"].update(score=0.5), "outcome: "),
    "world": (lambda it: it["task"].update(index=9), ": the actor's first prompt does not have"),
    "an answer that is left out": (lambda it: it.update(world=[]), "turn 1: its call is not among"),
    "a turn without a call": (lambda it: it.update(world=[{"turn": 99}]), "turn 100 should show a call"),
}
"""Of an episode without skills."""


async def test_what_an_episode_came_to(learnt: ScriptedRun, tmp_path: Path) -> None:
    files = ("evaluations/0000.jsonl", "trajectories/batch_0000.jsonl")
    places = [(file, line) for file in files for line in (0, 1)]
    played = [*learnt.data.evaluations(0), *learnt.data.trajectories(0)]
    for some in batched(CHANGES.items(), len(places)):
        run = copy_of(learnt.dir, tmp_path / some[0][0])
        for (_, (edit, _)), (file, line) in zip(some, places, strict=False):
            change(run, file, edit, line)
        check = await replayed(run)
        assert check.found == len(some)
        found = {difference.split(",")[0].split(":")[0]: difference for difference in told(check)}
        for (name, (_, expected)), episode in zip(some, played, strict=False):
            assert expected in found[episode.episode], (name, found[episode.episode])


NESTED: dict[str, tuple[Change, str]] = {
    "inner result": (lambda it: last_of(it)["calls"][0].update(result="x"), "to_flag > look, result"),
    "inner name": (lambda it: last_of(it)["calls"][0].update(name="gaze"), "to_flag > gaze, name"),
    "one less": (
        lambda it: last_of(it)["calls"].pop(),
        "to_flag, calls: recorded is '1', and it",
    ),
    "omitted": (lambda it: last_of(it).update(omitted=1), "to_flag, omitted"),
}


async def test_and_what_a_skill_called(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    edits = list(NESTED.values())
    for place in range(2):
        change(run, "evaluations/0004.jsonl", edits[place][0], line=place)
        change(run, "evaluations/0002.jsonl", edits[place + 2][0], line=place)
    check = await replayed(run)
    assert check.found == 4
    for _, expected in edits:
        assert any(expected in difference for difference in told(check)), (expected, told(check))


async def test_a_library_that_does_something_else(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    module = run / "policies/v0001/skills.py"
    module.write_text(module.read_text().replace("walk(steps=flag - field)", "walk(steps=flag - field - 1)"))
    check = await replayed(run)
    played = [each for each in learnt.data.trajectories() if each.policy == 1]
    played += [each for each in learnt.data.evaluations() if each.policy == 1]
    assert check.found == len(played) > 0
    assert all("turn 1: to_flag > walk, arguments" in each for each in told(check))


def skill(seconds: float = 1.0, result: object = "there") -> CallNode:
    step = CallNode("walk", "primitive", {"steps": 1}, "on", actions=1, seconds=0.1)
    return CallNode("go", "skill", {}, result, calls=[step], seconds=seconds)


def test_neither_seconds_nor_places_of_objects_in_memory_count() -> None:
    assert find_first_difference(skill(seconds=1.0), skill(seconds=2.0)) is None
    one, other = (skill(result=[f"<Door object at 0x7f9af260{n}b50>"]) for n in (1, 2))
    assert find_first_difference(one, other) is None
    assert find_first_difference(one, skill(result=["<Door object>"])) is not None


async def test_a_call_that_is_a_mistake_repeats_with_its_traceback(corridor: Runs) -> None:
    fails = (
        'def to_flag() -> str:\n    """Fail."""\n    try:\n        walk(steps=-1, direction="up")\n'
        '    except Exception as error:\n        raise KeyError({str(error), "b", "c"})\n    return ""'
    )

    def actor(request: Request) -> Answer:
        return walker(request) if request.turn == 0 else call("walk", steps=9)

    run = corridor(
        script(actor, (call("write_skill", source=fails, public=True),)),
        "run.rollouts=1",
        "run.sleep_every=1",
    )
    await run.play("run.eval_every=1")
    check = await replayed(run.dir)
    assert check.level == "ok", told(check)
    last = [each for each in run.data.evaluations(1) if each.turns[0].executed]
    assert "Traceback" in str(last[0].turns[0].executed)


NOISE = '''import random

def to_flag() -> float:
    """Draw a number, and record as much as one call can."""
    for _ in range(5_000):
        _pad("x" * 200)
    return random.random()

def _pad(text: str) -> str:
    """Give back."""
    return text'''


async def test_calls_that_an_episode_had_no_room_to_record_are_no_difference(corridor: Runs) -> None:
    def actor(request: Request) -> Answer:
        return call("to_flag") if "to_flag" in request.tools and request.turn < 6 else call("walk", steps=9)

    given = ("run.rollouts=1", "run.sleep_every=1", "run.test_episodes=1")
    run = corridor(script(actor, (call("write_skill", source=NOISE, public=True),)), *given)
    await run.play("run.eval_every=1")
    (episode,) = run.data.evaluations(1)
    nodes = [turn.executed for turn in episode.turns if turn.executed is not None]
    assert [bool(node.omitted) for node in nodes[:6]] == [False] * 5 + [True]
    assert [len(node.calls) + node.omitted for node in nodes[:6]] == [5_000] * 6
    assert len({node.result for node in nodes[:6]}) == 6
    told_of = f"  [{nodes[5].omitted} further calls were not recorded]"
    assert told_of in [*call_lines(msgspec.to_builtins(nodes[5]))]
    check = await replayed(run.dir)
    assert (check.level, check.found) == ("ok", 0), told(check)


@pytest.mark.parametrize("what", ["load", "call"])
async def test_what_was_done_between_the_turns_counts(
    programmed: ScriptedRun, tmp_path: Path, what: str
) -> None:
    run = copy_of(programmed.dir, tmp_path)

    def leave_out(record: Any) -> None:
        step = next(step for step in record["world"] if what in step)
        if what == "load":
            record["world"].remove(step)
        else:
            step["call"]["result"] = "nothing"

    change(run, "trajectories/batch_0000.jsonl", leave_out)
    check = await replayed(run)
    assert check.found == 1


def test_the_error_of_a_killed_skill_is_known_as_such() -> None:
    assert KILLED.search(f"TimeLimitReached: stopped at the time limit of 1 s; {skill_process._KILLED}")
