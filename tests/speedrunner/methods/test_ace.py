"""ACE: a reflector counts and reports, a curator changes the playbook by deltas, the actor reads it."""

from __future__ import annotations

import msgspec
import pytest

from speedrunner.methods import Policy, ToolError
from speedrunner.methods.ace import Addition, Item, Playbook
from speedrunner.store.policies import InvalidPolicy, decode_state
from tests.scripted_engine import Answer, Request, call, say
from tests.scripted_runs import Runs, check_whole, flag

OLD = Playbook([Item(1, "strategy", "Walk right."), Item(2, "fact", "The flag is far.", 2, 1)], 4)


def add(*texts: str) -> list[Addition]:
    return [{"section": "mistake", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("remove", "added", "expected", "following"),
    [
        ([], [], ["1 Walk right.", "2 The flag is far."], 4),
        ([2], ["Mind  the\npit."], ["1 Walk right.", "4 Mind the pit."], 5),
        ([], ["Walk right.", "Look."], ["1 Walk right.", "2 The flag is far.", "4 Look."], 5),
        ([1], ["Walk right."], ["2 The flag is far.", "4 Walk right."], 5),
    ],
)
def test_a_delta_keeps_all_other_items_and_uses_no_number_twice(
    remove: list[int], added: list[str], expected: list[str], following: int
) -> None:
    changed = OLD.change(remove, add(*added))
    assert [f"{each.number} {each.text}" for each in changed.items] == expected
    assert changed.next == following
    assert {*changed.items} & {*OLD.items} == {each for each in OLD.items if each.number not in remove}


def test_what_means_nothing_is_refused() -> None:
    for remove, added, why in (([3], [], "has no item 3"), ([], [" "], "an item to add has no text")):
        with pytest.raises(ToolError, match=why):
            OLD.change(remove, add(*added))
    assert decode_state(Policy(version=0, method=msgspec.to_builtins(OLD)), Playbook, "") == OLD
    with pytest.raises(InvalidPolicy, match="v0003 contains no playbook of ACE"):
        decode_state(Policy(version=3, method={"completed": []}), Playbook, "playbook of ACE")


async def test_a_session_whose_playbook_is_an_eighth_of_the_context(corridor: Runs) -> None:
    """Two sleeps of two episodes: the second has a playbook to count, to correct and to overfill."""

    def answer(request: Request) -> Answer:
        if not request.tools:
            return say("")
        where = flag(request)
        if "report_lessons" in request.tools:
            harmful = [2] if "- [2]" in request.task and request.turn else [9] * (request.turn == 0)
            marks = {"helpful": [1], "harmful": harmful} if "- [1]" in request.task else {}
            return call(
                "report_lessons", **({"helpful": [], "harmful": []} | marks), lessons=f"Flag {where}."
            )
        if "change_playbook" in request.tools:
            if "- [2]" not in request.task:
                added = "Fly." if "Flag 4." in request.task else "Walk."
                return call("change_playbook", remove=[], add=[{"section": "fact", "text": added}])
            huge = " ".join(map(str, range(900))) if request.turn == 0 else "Look."
            return call("change_playbook", remove=[2], add=[{"section": "mistake", "text": huge}])
        return call("walk", steps=9)

    run = corridor(answer, context=12_000)
    await run.play("method=ace")
    check_whole(run)
    texts = [run.data.policies.load(version).notes.split("\n\n") for version in range(3)]
    first, second = "Facts:\n- [1] Walk.\n- [2] Fly.", "Facts:\n- [1] Walk."
    assert texts == [[""], [first], [second, "Mistakes to avoid:\n- [3] Look."]]
    counted = decode_state(run.data.policies.load(2), Playbook, "").text(counted=True)
    assert "- [1] (helped 2, harmed 0) Walk." in counted
    assert [sleep.changed for sleep in run.data.sleeps] == [
        "playbook items: 2 added, 0 removed",
        "playbook items: 1 added, 1 removed",
    ]
    roles = [[agent.role for agent in sleep.agents] for sleep in run.data.sleeps]
    assert roles == [["reflector", "curator"] * 2] * 2
    reports, changes = (
        [request for request in run.server.requests if tool in request.tools]
        for tool in ("report_lessons", "change_playbook")
    )
    assert "The actor had no playbook." in reports[1].task  # item 1 is newer than the episode
    assert "walk(steps=9) -> You are at the flag." in reports[0].task
    assert any("the playbook has no item 9" in each.messages[-1][1] for each in reports)
    assert any("it can have at most 1,500" in each.messages[-1][1] for each in changes)
    assert any("- [1] (helped 1, harmed 0) Walk." in each.task for each in changes)  # only the curator counts
    assert not any("helped" in each.task for each in reports)
    held_out = [each for each in run.server.requests if flag(each) == 7 and "walk" in each.tools]
    assert sorted("Walk." in each.system for each in held_out) == [False, True, True]
