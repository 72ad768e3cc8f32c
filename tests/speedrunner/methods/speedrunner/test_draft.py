"""The inducer's edit tools over one draft of the library: what they say, and what is recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import envs
from serving.errors import InvalidTool
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.agents.toolbox import Toolbox, ToolError
from speedrunner.library.library import Library
from speedrunner.methods.speedrunner.draft import Draft
from speedrunner.sandbox.code_session import load_failure
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import Edit

SKILL = '''def advance() -> str:
    """Go two steps forward."""
    go_forward()
    return go_forward()'''
CALLER = '''def advance_twice() -> str:
    """Go four steps forward."""
    advance()
    return advance()'''


@pytest.fixture(scope="module")
def babyai() -> envs.TextEnv:
    return envs.make("babyai")


@pytest.fixture
def edits() -> list[Edit]:
    return []


Drafts = Callable[..., Draft]


@pytest.fixture
def draft(babyai: envs.TextEnv, edits: list[Edit]) -> Drafts:
    def draft(*sources: str, page_chars: int = 8000) -> Draft:
        library = Library(babyai.primitives, load=partial(load_failure, Sandbox()))
        for source in sources:
            library = library.write(source, public=True, sleep=1)
        return Draft(library, 3, edits, page_chars)

    return draft


class TestReading:
    async def test_skills_are_listed_with_parameters_and_calls(self, draft: Drafts) -> None:
        writing = draft(SKILL)
        await writing.write_skill(CALLER.replace("()", "(way: str = 'left')", 1), public=False)
        assert writing.list_skills().splitlines() == [
            "public advance(), calls go_forward",
            "private advance_twice(way: str = 'left'), calls advance",
        ]
        assert writing.list_skills(first=1).splitlines() == writing.list_skills().splitlines()[1:]
        assert writing.list_skills(first=2) == "There are no further lines."

    def test_an_empty_library_says_so(self, draft: Drafts) -> None:
        assert draft().list_skills() == "The library is empty."

    def test_a_skill_is_shown_with_its_callers(self, draft: Drafts) -> None:
        writing = draft(SKILL, CALLER)
        assert writing.show_skill("advance") == f"# public, called by advance_twice\n{SKILL}"
        assert writing.show_skill("advance", 4) == "    return go_forward()"

    def test_a_skill_that_there_is_not(self, draft: Drafts, edits: list[Edit]) -> None:
        with pytest.raises(ToolError, match="there is no skill advanse; did you mean advance"):
            draft(SKILL).show_skill("advanse")
        assert edits == []

    def test_pages_follow_each_other_without_gap_or_overlap(self, draft: Drafts) -> None:
        whole = draft(SKILL).show_skill("advance").splitlines()
        reading = draft(SKILL, page_chars=60)
        read: list[str] = []
        while len(read) < len(whole):
            *lines, last = reading.show_skill("advance", len(read)).splitlines()
            if not last.startswith("[lines "):
                lines, last = [*lines, last], ""
            assert sum(map(len, lines)) <= 60
            first, end = len(read), len(read) + len(lines)
            read += lines
            if last:
                assert last == f"[lines {first} to {end - 1} of {len(whole)}; continue with from_line={end}]"
        assert read == whole

    def test_a_line_that_is_too_long_is_cut_and_says_so(self, draft: Drafts) -> None:
        page = draft(SKILL, page_chars=10).show_skill("advance", 1)
        assert page == (
            "def advanc [cut after 10 of 21 characters]\n[lines 1 to 1 of 5; continue with from_line=2]"
        )


class TestEditing:
    async def test_a_new_skill(self, draft: Drafts, edits: list[Edit]) -> None:
        writing = draft()
        assert (
            await writing.write_skill(SKILL, True) == "advance was added. The library has 1 skill; 1 public."
        )
        assert edits == [Edit("write", "advance", source=SKILL)]
        (skill,) = writing.library.skills
        assert (skill.name, skill.public, skill.created, skill.edited) == ("advance", True, 3, 3)

    async def test_a_skill_with_its_helper(self, draft: Drafts, edits: list[Edit]) -> None:
        writing = draft(CALLER.replace("advance()", "go_forward()"))
        helper = SKILL.replace("advance", "_step")
        source = f"{helper}\n\n{CALLER}".replace("advance()", "_step()")
        said = await writing.write_skill(source, True)
        assert said == ("_step was added, advance_twice was replaced. The library has 2 skills; 1 public.")
        assert edits == [Edit("write", "_step, advance_twice", source=source)]

    async def test_replacing_one(self, draft: Drafts, edits: list[Edit]) -> None:
        writing = draft(SKILL, CALLER)
        assert await writing.write_skill(SKILL.replace("two", "2"), False) == (
            "advance was replaced. The library has 2 skills; 1 public."
        )
        assert edits == [Edit("write", "advance", source=SKILL.replace("two", "2"), public=False)]

    async def test_the_other_edits(self, draft: Drafts, edits: list[Edit]) -> None:
        writing = draft(SKILL, CALLER)
        assert (await writing.edit_skill("advance", "two", "2")).startswith("advance was changed. ")
        assert (await writing.rename_skill("advance", "_step")).startswith("advance was renamed to _step. ")
        assert (await writing.set_visibility("_step", False)).startswith("_step is now private. ")
        assert (await writing.delete_skill("advance_twice")).startswith("advance_twice was deleted. ")
        assert edits == [
            Edit("edit", "advance", old="two", new="2"),
            Edit("rename", "advance", new_name="_step"),
            Edit("visibility", "_step", public=False),
            Edit("delete", "advance_twice"),
        ]
        (skill,) = writing.library.skills
        assert (skill.name, skill.public) == ("_step", False)
        assert "Go 2 steps" in writing.library.source

    async def test_what_changes_nothing_is_no_edit(self, draft: Drafts, edits: list[Edit]) -> None:
        writing = draft(SKILL)
        before = writing.library
        for said in (
            await writing.write_skill(SKILL, True),
            await writing.set_visibility("advance", True),
            await writing.edit_skill("advance", "two", "two"),
        ):
            assert said == "Nothing changed: the library is already like this."
        assert (edits, writing.library) == ([], before)

    async def test_another_value_of_its_constant_is_an_edit(self, draft: Drafts, edits: list[Edit]) -> None:
        source = 'STEPS = 2\n\ndef advance() -> str:\n    """Go."""\n    return str(STEPS)'
        writing = draft(source)
        assert (await writing.write_skill(source.replace("= 2", "= 3"), True)).startswith(
            "advance was replaced."
        )
        assert writing.library.shared == {"STEPS": "STEPS = 3"}
        assert len(edits) == 1

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            (f"class Area:\n    def size(self):\n        return 1\n\n{SKILL}", "advance"),
            (f'NOTE = """\ndef note():\n"""\n{SKILL}', "advance"),
            (SKILL.replace("def", "async def", 1), "advance"),
            ("    " + SKILL.replace("\n", "\n    "), "advance"),
            (f"class Area:\n    def size(self):\n        break\n\n{SKILL} +", "advance"),
            ("class Area:\n    def size(self):\n        return 1", ""),
            ("def (", ""),
        ],
    )
    async def test_an_edit_is_named_after_its_function(
        self, draft: Drafts, edits: list[Edit], source: str, name: str
    ) -> None:
        with suppress(ToolError):
            said = await draft().write_skill(source, public=True)
            assert said.startswith(f"{name} was added. ")
        assert [edit.name for edit in edits] == [name]

    @pytest.mark.process
    async def test_a_class_that_cannot_be_defined_is_refused(self, draft: Drafts, edits: list[Edit]) -> None:
        shared = "class Area:\n    size = 4 // 2"
        source = f'{shared}\n\ndef size() -> int:\n    """The size."""\n    return Area.size'
        writing = draft()
        with pytest.raises(ToolError, match=r"^the class Area fails .*, in its line 2: ZeroDivisionError"):
            await writing.write_skill(source.replace("2", "0"), public=True)
        assert writing.library.skills == ()
        await writing.write_skill(source, public=True)
        with pytest.raises(ToolError, match="ZeroDivisionError"):
            await writing.edit_skill("Area", "2", "0")
        assert writing.library.shared == {"Area": shared}
        assert [(edit.action, edit.name, edit.error is None) for edit in edits] == [
            ("write", "size", False),
            ("write", "size", True),
            ("edit", "Area", False),
        ]

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("", "function"),
            ("def advance(:", "syntax"),
            ("x = 1", "function"),
            ('def go_forward() -> str:\n    """Go."""\n    return ""', "already a primitive"),
            ('def submit_answer() -> str:\n    """Go."""\n    return ""', "already a tool of the actor"),
            ("def go() -> str:\n    return ''", "docstring"),
            ('def go(far) -> str:\n    """Go."""\n    return ""', "far"),
            ('def go() -> str:\n    """Go."""\n    return fly()', "fly is not defined"),
            ('import os\n\ndef go() -> str:\n    """Go."""\n    return os.getcwd()', "os"),
            ('def go() -> str:\n    """Go."""\n    return open("x").read()', "open is not available"),
            ("def go() -> str:\n" + "    " * 20_000, "characters"),
            ("\x00", ""),
            ("\udcff", ""),
            ("(" * 5000, ""),
        ],
    )
    async def test_a_refused_source_is_an_edit_with_an_error_and_changes_nothing(
        self, draft: Drafts, edits: list[Edit], source: str, reason: str
    ) -> None:
        writing = draft(SKILL)
        before = writing.library
        with pytest.raises(ToolError) as error:
            await writing.write_skill(source, public=True)
        assert reason.lower() in str(error.value).lower()
        (refused,) = edits
        assert (refused.action, refused.error) == ("write", str(error.value))
        assert writing.library is before

    @pytest.mark.parametrize(
        ("action", "arguments", "reason"),
        [
            ("delete", ("advance",), "advance is called by advance_twice; change or delete these first"),
            ("delete", ("retreat",), "there is no skill retreat"),
            ("delete", ("go_forward",), "there is no skill go_forward"),
            ("rename", ("advance", "go_forward"), "go_forward is already a primitive"),
            ("edit", ("advance", "go_forward", "fly"), "occurs 2 times in advance"),
        ],
    )
    async def test_so_are_other_refused_edits(
        self, draft: Drafts, edits: list[Edit], action: str, arguments: tuple[str, ...], reason: str
    ) -> None:
        writing = draft(SKILL, CALLER)
        before = writing.library
        with pytest.raises(ToolError, match=reason) as error:
            await getattr(writing, f"{action}_skill")(*arguments)
        (refused,) = edits
        assert (refused.action, refused.name, refused.error) == (action, arguments[0], str(error.value))
        assert writing.library is before

    async def test_what_the_model_in_use_could_not_call_is_refused(
        self, draft: Drafts, edits: list[Edit]
    ) -> None:
        def check(spec: ToolSpec) -> None:
            raise InvalidTool("no token for it")

        writing = draft()
        writing.library = Library(writing.library.primitives, check=check)
        with pytest.raises(ToolError, match="advance cannot be offered as a tool: no token for it"):
            await writing.write_skill(SKILL, True)
        await writing.write_skill(SKILL, False)
        with pytest.raises(ToolError, match="advance cannot be offered as a tool: no token for it"):
            await writing.set_visibility("advance", True)


class TestTools:
    def test_every_tool_is_documented_and_named_in_the_order_of_use(self, draft: Drafts) -> None:
        tools = draft().tools(all_public=False)
        assert [tool.__name__ for tool in tools] == [
            "list_skills",
            "show_skill",
            "write_skill",
            "set_visibility",
            "edit_skill",
            "rename_skill",
            "delete_skill",
        ]
        assert all(inspect.getdoc(tool) for tool in tools)

    async def test_without_private_skills_no_tool_knows_of_them(self, draft: Drafts) -> None:
        writing = draft()
        tools = writing.tools(all_public=True)
        assert "set_visibility" not in [tool.__name__ for tool in tools]
        specs = Toolbox(tools, writing.list_skills).specs
        assert not any("public" in str(spec.parameters) or "private" in spec.doc for spec in specs)
        await Toolbox(tools, writing.list_skills).execute(ToolCall("write_skill", {"source": SKILL}))
        assert writing.library.skills[0].public
