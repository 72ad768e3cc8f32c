"""The inducer's edit tools over one draft of the library: what they say, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import envs
from speedrunner.agents.loop import ToolError
from speedrunner.library.library import Library
from speedrunner.methods.speedrunner.draft import Draft
from speedrunner.store.records import Edit
from tests.golden_tables import Golden, table

SKILL = '''def advance() -> str:
    """Go two steps forward."""
    go_forward()
    return go_forward()'''
CALLER = '''def advance_twice() -> str:
    """Go four steps forward."""
    advance()
    return advance()'''


GO = 'def go() -> str:\n    """Go."""\n    return str()'
REFUSED = {
    "write nothing": ("write", "", True),
    "write what Python refuses": ("write", "\udcff", True),
    "write a tool of the actor": ("write", GO.replace("go()", "submit_answer()"), True),
    "delete what another skill calls": ("delete", "advance"),
    "rename to a primitive": ("rename", "advance", "go_forward"),
    "edit text of two places": ("edit", "advance", "go_forward", "fly"),
}
"""Edits by what is wrong with them; tests/speedrunner/library/test_library.py has all rules."""


@pytest.fixture(scope="module")
def babyai() -> envs.TextEnv:
    return envs.make("babyai")


@pytest.fixture
def edits() -> list[Edit]:
    return []


Drafts = Callable[..., Draft]


@pytest.fixture
def draft(babyai: envs.TextEnv, edits: list[Edit]) -> Drafts:
    def draft(*sources: str) -> Draft:
        library = Library(babyai.primitives)
        for source in sources:
            library = library.write(source, public=True, sleep=1)
        return Draft(library, 3, edits)

    return draft


def test_what_is_shown(
    draft: Drafts, edits: list[Edit], golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = draft(SKILL)
    writing.write_skill(CALLER.replace("()", "(way: str = 'left')", 1), public=False)
    shown = {
        "list": writing.list_skills(),
        "list from line 1": writing.list_skills(first=1),
        "list from line 2": writing.list_skills(first=2),
        "list no skills": draft().list_skills(),
        "show": writing.show_skill("advance"),
        "show from line 4": writing.show_skill("advance", 4),
    }
    monkeypatch.setattr("speedrunner.methods.speedrunner.draft.PAGE_CHARS", 10)
    shown["show a page of 10 characters"] = draft(SKILL).show_skill("advance", 1)
    edits.clear()
    with pytest.raises(ToolError) as error:
        writing.show_skill("advanse")
    golden("library/shown_drafts.txt", table({**shown, "show what is missing": str(error.value)}))
    assert edits == []


class TestEditing:
    def test_each_edit_is_recorded_and_reported(
        self, draft: Drafts, edits: list[Edit], golden: Golden
    ) -> None:
        writing = draft()
        report = {"write a skill": writing.write_skill(SKILL, True)}
        (skill,) = writing.library.skills
        assert (skill.name, skill.public, skill.created, skill.edited) == ("advance", True, 3, 3)

        pair = f"{SKILL.replace('advance', '_go')}\n\n{CALLER.replace('advance()', '_go()')}"
        longer = SKILL.replace("two", "2")
        report |= {
            "write another": writing.write_skill(CALLER, True),
            "write it with a helper": writing.write_skill(pair, True),
            "write it again, private": writing.write_skill(longer, False),
            "edit": writing.edit_skill("advance", "2", "II"),
            "rename": writing.rename_skill("advance", "_step"),
            "show": writing.set_visibility("_step", True),
            "delete": writing.delete_skill("advance_twice"),
        }
        assert edits == [
            Edit("write", "advance", source=SKILL),
            Edit("write", "advance_twice", source=CALLER),
            Edit("write", "_go, advance_twice", source=pair),
            Edit("write", "advance", source=longer, public=False),
            Edit("edit", "advance", old="2", new="II"),
            Edit("rename", "advance", new_name="_step"),
            Edit("visibility", "_step", public=True),
            Edit("delete", "advance_twice"),
        ]
        assert [(skill.name, skill.public) for skill in writing.library.skills] == [
            ("_step", True),
            ("_go", False),
        ]
        assert "Go II steps" in writing.library.source

        edits.clear()
        before, helper = writing.library, writing.library.named["_go"].source
        report |= {
            "write the same": writing.write_skill(helper, True),
            "show what is public": writing.set_visibility("_step", True),
            "edit to the same": writing.edit_skill("_step", "II", "II"),
        }
        assert (edits, writing.library) == ([], before)
        golden("library/reported_edits.txt", table(report))

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            (f'NOTE = """\ndef note():\n"""\n{SKILL}', "advance"),
            (SKILL.replace("def", "async def", 1), "advance"),
            ("    " + SKILL.replace("\n", "\n    "), "advance"),
            (f"class Area:\n    def size(self):\n        break\n\n{SKILL} +", "advance"),
            ("class Area:\n    def size(self):\n        return 1", ""),
            ("def (", ""),
        ],
    )
    def test_an_edit_is_named_after_its_function(
        self, draft: Drafts, edits: list[Edit], source: str, name: str
    ) -> None:
        with suppress(ToolError):
            said = draft().write_skill(source, public=True)
            assert said.startswith(f"{name} was added. ")
        assert [edit.name for edit in edits] == [name]

    def test_a_refused_edit_is_recorded_with_its_error_and_changes_nothing(
        self, draft: Drafts, edits: list[Edit], golden: Golden
    ) -> None:
        messages: dict[str, str] = {}
        for what, (action, *arguments) in REFUSED.items():
            writing = draft(SKILL, CALLER)
            before = writing.library
            with pytest.raises(ToolError) as error:
                getattr(writing, f"{action}_skill")(*arguments)
            messages[what] = str(error.value)
            refused = edits.pop()
            name = refused.name if action == "write" else arguments[0]
            assert (refused.action, refused.name, refused.error) == (action, name, messages[what])
            assert (writing.library, edits) == (before, [])
        golden("library/refused_drafts.txt", table(messages))
