"""Programs join a library in which others have taken their names."""

from __future__ import annotations

import pytest

from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.methods.voyager.programs import Program, add_program, add_programs
from speedrunner.store.records import Policy
from tests.toy_env import Racetrack


def source(name: str, *calls: str, last: str = "look()") -> str:
    lines = [f"    {call}()" for call in calls]
    return "\n".join([f"def {name}() -> str:", f'    """Do {name}."""', *lines, f"    return {last}"])


def program(*sources: str) -> Program:
    return Program("go", "\n\n\n".join(sources))


def library(*episodes: list[Program]) -> Library:
    grown = Library(Racetrack().primitives)
    for number, programs in enumerate(episodes, start=1):
        grown, edits = add_programs(grown, programs, number)
        assert [edit.error for edit in edits if edit.error] == []
    return grown


def test_every_call_goes_where_it_went_in_the_episode() -> None:
    """Three names of which each could be taken for the number of the one before."""
    first = [program(source("a", last="walk(1)"))]
    second = [program(source("a")), program(source("a_2", "a")), program(source("b", "a"))]
    grown = library(first, second)
    assert [skill.name for skill in grown.skills] == ["a", "a_3", "a_2", "b"]
    assert (grown.calls("a_2"), grown.calls("b")) == (("a_3", "look"), ("a_3", "look"))


def test_no_name_of_a_variable_is_given_to_a_function() -> None:
    odd = 'def go() -> str:\n    """Go."""\n    a_2 = look()\n    return a() + a_2'
    grown = library([program(source("a", last="walk(1)"))], [program(source("a"), odd)])
    assert [skill.name for skill in grown.skills] == ["a", "a_3", "go"]
    assert grown.calls("go") == ("a_3", "look")


def test_helpers_are_private_and_named_anew_with_their_program() -> None:
    one = program(source("helper", last="walk(1)"), source("go", "helper"))
    other = program(source("helper"), source("run", "helper"))
    grown = library([one], [other])
    assert [(skill.name, skill.public) for skill in grown.skills] == [
        ("helper", False), ("go", True), ("helper_2", False), ("run", True),
    ]  # fmt: skip
    assert grown.calls("run") == ("helper_2", "look")


def test_a_program_that_is_there_word_for_word_is_not_added_again() -> None:
    both = [program(source("a")), program(source("b", "a"))]
    grown = library(both, both)
    assert [(skill.name, skill.created) for skill in grown.skills] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"LIMIT = []\n\n{source('a', last='LIMIT')}", "use those, or rename yours\nLIMIT = 3"),
        (f"class Box:\n    pass\n\n{source('a')}", "define the class Box inside the function"),
        (source("known"), "use those, or rename yours\nknown\\(\\): Do known\\."),
    ],
)
def test_what_would_meet_others_in_the_library_is_no_program(text: str, why: str) -> None:
    known = library([program("LIMIT = 3", source("known", last="walk(LIMIT)"))])
    with pytest.raises(InvalidSkill, match=why):
        add_program(known, text)


def test_a_helper_that_is_there_word_for_word_is_shared() -> None:
    helper = source("helper", last="walk(1)")
    first, second = program(helper, source("go", "helper")), program(helper, source("run", "helper"))
    grown = library([first], [second])
    assert [skill.name for skill in grown.skills] == ["helper", "go", "run"]
    assert add_program(grown, second.source)[0] is grown  # also in a rollout


def test_equal_functions_share_a_number() -> None:
    """Three episodes have one helper, two of them another one with its name."""
    other = source("helper")
    programs = [program(other, source(name, "helper")) for name in ("run", "jump")]
    grown = library([program(source("helper", last="walk(1)"), source("go", "helper"))], programs[:1])
    grown, (edit,) = add_programs(grown, programs[1:], 3)
    assert [skill.name for skill in grown.skills] == ["helper", "go", "helper_2", "run", "jump"]
    assert (grown.calls("jump"), edit.name) == (("helper_2", "look"), "jump")
    assert Library(Racetrack().primitives).of(grown.policy(Policy(version=0))).skills == grown.skills


def test_constants_of_a_program_join_as_its_helpers_do() -> None:
    """An equal constant is one, another with a taken name gets a number where it is used."""
    go = program("LIMIT = 3", source("go", last="walk(LIMIT)"))
    run = program("LIMIT: int = 4", "STEPS = [1, 2]", source("run", last="walk(LIMIT + len(STEPS))"))
    jump = program(source("jump", last="walk(LIMIT)"))
    other = program("LIMIT = 3", source("skip", last="walk(LIMIT)"))
    grown = library([go], [run, jump], [run], [other])
    assert grown.shared == {"LIMIT": "LIMIT = 3", "LIMIT_2": "LIMIT_2: int = 4", "STEPS": "STEPS = [1, 2]"}
    used = {name: grown.users(name) for name in grown.shared}
    assert used == {"LIMIT": ["go", "skip"], "LIMIT_2": ["run", "jump"], "STEPS": ["run"]}


def test_functions_that_use_different_helpers_are_not_equal() -> None:
    episodes = [
        [program(source("a", last=last), source("b", "a"), source("c", "b"))]
        for last in ("walk(1)", "look()")
    ]
    grown = library(*episodes, episodes[1])
    assert [skill.name for skill in grown.skills] == ["a", "b", "c", "a_2", "b_2", "c_2"]
    assert grown.calls("c_2") == ("b_2", "look")


def test_a_program_that_another_one_contains_stays_public() -> None:
    known = source("known", last="walk(1)")
    grown = library([program(known)], [program(known, source("go", "known"))])
    assert [(skill.name, skill.public) for skill in grown.skills] == [("known", True), ("go", True)]
