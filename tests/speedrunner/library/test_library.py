"""The skill library: what an edit may say, what it changes, and how refusals read."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from speedrunner.library.checks import CLASS_LIMIT
from speedrunner.library.definition import read_text
from speedrunner.library.library import Library
from speedrunner.library.rules import DEFINITION_LIMIT, SOURCE_LIMIT, TOKEN_LIMIT, InvalidSkill
from speedrunner.library.signature import SUPPORTED
from speedrunner.sandbox.child.bounds import ALLOWED_MODULES
from speedrunner.store.policies import MODULE_BYTES, InvalidPolicy, PolicyStore
from speedrunner.store.records import Policy, Skill
from tests.toy_env import Corridor

WALK_FAR = '''
def walk_far(steps: int) -> str:
    """Walk to the right."""
    return walk(steps=steps)
'''
RUN = '''
def run() -> str:
    """Walk very far."""
    return walk_far(10)
'''
POINT = "from typing import TypedDict\n\nclass Point(TypedDict):\n    x: int\n    name: str\n\n"
TREE = "from typing import TypedDict\n\nclass Tree(TypedDict):\n    below: list[Tree]\n\n"
WIDE = "from typing import TypedDict\nclass F0(TypedDict):\n    x: int\n" + "".join(
    f"class F{n}(TypedDict):\n" + "".join(f"    {field}: F{n - 1}\n" for field in "abcdef")
    for n in range(1, 5)
)
"""Classes each of which has six fields of the one before."""


@pytest.fixture
def empty() -> Library:
    return Library(Corridor().primitives)


def write(library: Library, source: str, public: bool | None = True, sleep: int = 1) -> Library:
    return library.write(source, public=public, sleep=sleep)


def of_module(library: Library, source: str) -> Library:
    return library.write(source, sleep=0, limit=MODULE_BYTES)


def texts(library: Library) -> list[str]:
    """The functions' own texts."""
    return [library.named[each.name].source for each in library.skills]


def refusal(library: Library, source: str, public: bool = True) -> str:
    with pytest.raises(InvalidSkill) as caught:
        write(library, source, public)
    return str(caught.value)


def visibility_refusal(library: Library) -> str:
    with pytest.raises(InvalidSkill) as caught:
        library.set_visibility("skill", public=True, sleep=0)
    return str(caught.value)


def call_graph(library: Library) -> dict[str, tuple[str, ...]]:
    return {name: library.calls(name) for name in library.by_name}


def function(parameters: str = "", body: str = "return None", doc: str = '"""Do it."""') -> str:
    return f"def skill({parameters}):\n    {doc}\n    {body}\n"


class TestEdits:
    def test_a_written_skill_is_the_functions_own_text(self, empty: Library) -> None:
        library = write(empty, WALK_FAR, public=False, sleep=3)
        (skill,) = library.skills
        assert skill.name == "walk_far"
        assert library.named["walk_far"].source == WALK_FAR.strip()
        assert library.doc("walk_far") == "Walk to the right."
        assert (skill.public, skill.created, skill.edited) == (False, 3, 3)

    def test_an_edit_leaves_the_library_it_began_with(self, empty: Library) -> None:
        write(empty, WALK_FAR)
        assert empty.skills == ()

    def test_replacing_keeps_the_place_and_the_creation(self, empty: Library) -> None:
        library = write(write(empty, WALK_FAR), RUN)
        changed = write(library, WALK_FAR.replace("right", "flag"), sleep=2)
        assert [each.name for each in changed.skills] == ["walk_far", "run"]
        assert (changed.skills[0].created, changed.skills[0].edited) == (1, 2)

    def test_an_edit_that_changes_nothing_is_no_edit(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        assert write(library, WALK_FAR, sleep=2) == library

    def test_changing_visibility_is_an_edit(self, empty: Library) -> None:
        (skill,) = write(write(empty, WALK_FAR), WALK_FAR, public=False, sleep=2).skills
        assert (skill.public, skill.edited) == (False, 2)

    @pytest.mark.parametrize(
        "body",
        [
            "return f\"{'x'.replace('\u00a0', '')}\"",
            "return f\"{'x'.replace('\u200b', '')}\"",
            f"return 0x{'f' * 9000}",
        ],
    )
    def test_whatever_is_valid_python_is_accepted(self, empty: Library, body: str) -> None:
        library = write(empty, function(body=body))
        assert body in library.source

    def test_strings_are_kept_to_the_last_space(self, empty: Library) -> None:
        source = function(body="return '''a\n    \n\t\n'''")
        assert texts(write(empty, source)) == [source.strip()]
        indented = "\n # Now:\n" + "".join(f"  {line}" for line in source.splitlines(keepends=True))
        assert texts(write(empty, indented)) == [source.strip()]
        assert texts(write(empty, f"    # Now:\n{source}")) == [source.strip()]

    def test_an_indented_source_is_accepted(self, empty: Library) -> None:
        indented = "".join(f"    {line}\n" for line in WALK_FAR.strip().splitlines())
        assert texts(write(empty, indented)) == [WALK_FAR.strip()]

    def test_deleting(self, empty: Library) -> None:
        assert write(empty, WALK_FAR).delete("walk_far") == empty

    def test_what_others_call_cannot_be_deleted(self, empty: Library) -> None:
        library = write(write(empty, WALK_FAR), RUN)
        with pytest.raises(InvalidSkill, match=r"^walk_far is called by run; change or delete these first$"):
            library.delete("walk_far")

    def test_skills_that_call_each_other_are_taken_apart_before(self, empty: Library) -> None:
        ring = "".join(
            function(body=f"return {called}()").replace("skill", name)
            for name, called in [("ping", "pang"), ("pang", "pong"), ("pong", "ping")]
        )
        library = of_module(empty, ring)
        with pytest.raises(InvalidSkill) as caught:
            library.delete("ping")
        assert str(caught.value) == (
            "ping is called by pong; change or delete these first"
            " (pong and ping call each other: edit pong so that it does not call ping)"
        )
        library = library.edit("pong", "ping()", "None", sleep=2)
        assert library.delete("ping").delete("pang").delete("pong") == empty

    def test_a_recursive_skill_can_be_deleted(self, empty: Library) -> None:
        recursive = function("n: int", "return skill(n - 1)")
        assert write(empty, recursive).delete("skill") == empty

    def test_showing_names_visibility_and_callers(self, empty: Library) -> None:
        library = write(write(empty, WALK_FAR, public=False), RUN)
        assert library.show("walk_far") == f"# private, called by run\n{WALK_FAR.strip()}"
        assert library.show("run").startswith("# public, called by no other skill\n")

    @pytest.mark.parametrize("operation", ["show", "delete"])
    def test_a_missing_skill_is_named_with_near_matches(self, empty: Library, operation: str) -> None:
        library = write(empty, WALK_FAR)
        with pytest.raises(InvalidSkill, match=r"^there is no skill walk_fra; did you mean walk_far\?$"):
            getattr(library, operation)("walk_fra")


class TestSeveralFunctions:
    PAIR = RUN.replace("walk_far", "_far") + WALK_FAR.replace("walk_far", "_far")

    def test_a_helper_is_written_together_with_its_caller(self, empty: Library) -> None:
        library = write(empty, f"LENGTH = 3\n{self.PAIR}".replace("10", "LENGTH"), public=None, sleep=4)
        assert [(each.name, each.public) for each in library.skills] == [("run", True), ("_far", False)]
        assert call_graph(library) == {"run": ("_far",), "_far": ("walk",)}
        assert {each.created for each in library.skills} == {4}

    @pytest.mark.parametrize("public", [True, False])
    def test_all_of_them_can_be_shown_or_hidden(self, empty: Library, public: bool) -> None:
        assert {each.public for each in write(empty, self.PAIR, public=public).skills} == {public}

    def test_what_is_wrong_is_told_by_the_lines_of_the_edit(self, empty: Library) -> None:
        assert refusal(empty, self.PAIR.replace("walk(", "wlk(")) == (
            "line 8: wlk is not defined; did you mean walk?"
        )

    def test_some_may_be_new_and_others_not(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        library = write(library, WALK_FAR.replace("right", "flag") + RUN, sleep=2)
        assert [(each.name, each.created, each.edited) for each in library.skills] == [
            ("walk_far", 1, 2),
            ("run", 2, 2),
        ]

    def test_an_edit_of_a_piece_is_about_one(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        with pytest.raises(InvalidSkill, match=r"^the edit would turn walk_far into run, walk_far"):
            library.edit("walk_far", "def walk_far", f"{RUN.strip()}\ndef walk_far", sleep=2)


class TestEditingByExactText:
    def test_one_piece_of_a_skill_is_replaced(self, empty: Library) -> None:
        library = write(empty, WALK_FAR, public=False).edit("walk_far", "steps=steps", "steps=2", sleep=4)
        (skill,) = library.skills
        assert texts(library) == [WALK_FAR.strip().replace("steps=steps", "steps=2")]
        assert (skill.public, skill.created, skill.edited) == (False, 1, 4)

    @pytest.mark.parametrize(
        ("old", "new", "text"),
        [
            (
                "steps",
                "n",
                "the text to replace occurs 3 times in walk_far; include more of the text around it",
            ),
            ("", "n", "the text to replace does not occur in walk_far"),
            (
                "return walk(n=steps)",
                "",
                "; the nearest line is `return walk(steps=steps)` (spaces",
            ),
            ("zzz", "n", "the text to replace does not occur in walk_far; show walk_far first"),
            ("def walk_far", "def far", "the edit would turn walk_far into far; rename it instead"),
            ("walk(steps", "wlk(steps", "line 3: wlk is not defined; did you mean walk?"),
        ],
    )
    def test_what_is_refused(self, empty: Library, old: str, new: str, text: str) -> None:
        with pytest.raises(InvalidSkill) as caught:
            write(empty, WALK_FAR).edit("walk_far", old, new, sleep=2)
        assert text in str(caught.value)

    def test_a_shared_constant_can_be_edited_for_all_who_use_it(self, empty: Library) -> None:
        library = write(empty, "STEPS = 2\n" + function(body="return STEPS"))
        library = write(library, function(body="return STEPS").replace("skill", "other"))
        library = write(library, WALK_FAR).edit("STEPS", "2", "3", sleep=5)
        assert library.shared == {"STEPS": "STEPS = 3"}
        assert {each.name: each.edited for each in library.skills} == {"skill": 5, "other": 5, "walk_far": 1}

    def test_a_shared_import_can_be_edited(self, empty: Library) -> None:
        library = write(empty, "from math import floor as cut\n" + function(body="return cut(1.5)"))
        changed = library.edit("cut", "floor", "ceil", sleep=2)
        assert changed.shared == {"cut": "from math import ceil as cut"}
        with pytest.raises(InvalidSkill, match=r"^line 1: math has no flor$"):
            library.edit("cut", "floor", "flor", sleep=2)

    def test_an_edit_of_a_shared_constant_that_changes_nothing_is_no_edit(self, empty: Library) -> None:
        library = write(empty, "STEPS = 2\n" + function(body="return STEPS"))
        assert library.edit("STEPS", "2", "2", sleep=5) is library

    def test_an_edited_class_must_still_suit_the_skills_that_use_it(self, empty: Library) -> None:
        library = write(empty, POINT + function("p: Point", "return p['x']"))
        (*_, tool) = library.edit("Point", "x: int", "x: float", sleep=2).tools()
        assert tool.parameters["properties"]["p"]["properties"]["x"] == {"type": "number"}
        with pytest.raises(InvalidSkill, match=r"^skill, line 1: the parameter p cannot be Point"):
            library.edit("Point", "x: int", "x: set", sleep=2)
        with pytest.raises(InvalidSkill, match=r"^line 1: Base is not defined"):
            library.edit("Point", "(TypedDict)", "(Base)", sleep=2)
        with pytest.raises(InvalidSkill, match=r"^the edit would turn Point into Place$"):
            library.edit("Point", "class Point", "class Place", sleep=2)


class TestRenaming:
    def test_every_call_follows(self, empty: Library) -> None:
        library = write(write(write(empty, WALK_FAR), RUN), function(body="return run()"))
        renamed = library.rename("walk_far", "_stride", sleep=3)
        assert [(each.name, each.edited, each.created) for each in renamed.skills] == [
            ("_stride", 3, 1),
            ("run", 3, 1),
            ("skill", 1, 1),
        ]
        assert texts(renamed)[1] == RUN.strip().replace("walk_far", "_stride")
        assert call_graph(renamed)["run"] == ("_stride",)

    def test_only_references_change(self, empty: Library) -> None:
        source = (
            "def again(n: int) -> str:\n"
            '    """Call again, and again."""\n'
            "    if n == 0: return f'é {again(1)} again'  # again\n"
            "    return {'again': again, 'é': again(n - 1)}['again'](0)"
        )
        assert texts(write(empty, source).rename("again", "once_more", sleep=2)) == [
            "def once_more(n: int) -> str:\n"
            '    """Call again, and again."""\n'
            "    if n == 0: return f'é {once_more(1)} again'  # again\n"
            "    return {'again': once_more, 'é': once_more(n - 1)}['again'](0)"
        ]

    def test_methods_of_shared_classes_follow_too(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        walker = "class W:\n    def go(self):\n        return walk_far(2)\n"
        library = write(library, walker + function(body="return W().go()"))
        with pytest.raises(InvalidSkill, match=r"^walk_far is called by W; "):
            library.delete("walk_far")
        assert "return stride(2)" in library.rename("walk_far", "stride", sleep=2).shared["W"]

    @pytest.mark.parametrize(
        ("new", "text"),
        [
            ("run", "run is already in the library; choose another name"),
            ("walk", "line 1: walk is already a primitive; choose another name"),
            ("print", "line 1: print is already a Python builtin"),
            ("walk far", "'walk far' is not a valid function name"),
            ("class", "'class' is not a valid function name"),
            ("__far", "line 1: '__far' cannot name a skill"),
            ("steps", "walk_far also uses steps as a local name; change that first, then rename"),
        ],
    )
    def test_what_is_refused(self, empty: Library, new: str, text: str) -> None:
        with pytest.raises(InvalidSkill) as caught:
            write(write(empty, WALK_FAR), RUN).rename("walk_far", new, sleep=2)
        assert text in str(caught.value)

    def test_a_caller_with_a_variable_of_the_old_name_is_left_to_its_author(self, empty: Library) -> None:
        body = "def inner():\n        walk_far = 1\n        return walk_far\n    return walk_far(1)"
        with pytest.raises(InvalidSkill, match=r"^skill also uses walk_far as a local name"):
            write(write(empty, WALK_FAR), function(body=body)).rename("walk_far", "stride", sleep=2)


class TestVisibility:
    def test_a_skill_is_hidden_and_shown(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        hidden = library.set_visibility("walk_far", public=False, sleep=2)
        assert not hidden.public
        assert hidden.skills[0].edited == 2
        assert hidden.set_visibility("walk_far", public=True, sleep=3).public[0].edited == 3

    def test_what_it_is_already_is_no_edit(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        assert library.set_visibility("walk_far", public=True, sleep=2) is library

    def test_showing_one_checks_it(self) -> None:
        def check(spec: ToolSpec) -> None:
            raise InvalidTool(f"{spec.name} cannot be decoded")

        library = write(Library(Corridor().primitives, check=check), WALK_FAR, public=False)
        with pytest.raises(InvalidSkill, match="walk_far cannot be offered as a tool"):
            library.set_visibility("walk_far", public=True, sleep=2)


class TestClasses:
    def test_a_typed_dict_is_a_type_of_parameters(self, empty: Library) -> None:
        source = POINT + 'class Way(Point, total=False):\n    """A way."""\n    next: list[Point]\n\n'
        library = write(empty, source + function("way: Way, far: bool = False"))
        fields = {"x": {"type": "integer"}, "name": {"type": "string"}}
        rest = {"required": ["x", "name"], "additionalProperties": False}
        point = {"type": "object", "properties": fields, **rest}
        assert library.tools()[-1].parameters["properties"]["way"] == {
            "type": "object",
            "properties": {**fields, "next": {"type": "array", "items": point}},
            "description": "A way.",
            **rest,
        }

    def test_fields_that_may_be_left_out(self, empty: Library) -> None:
        source = "from typing import NotRequired\n" + POINT.replace("x: int", "x: NotRequired[int]")
        tool = write(empty, source + function("p: Point")).tools()[-1]
        assert tool.parameters["properties"]["p"]["required"] == ["name"]

    def test_a_later_skill_may_use_it(self, empty: Library) -> None:
        library = write(empty, POINT + function("p: Point", "return p['x']"))
        library = write(library, function("p: list[Point]", "return len(p)").replace("skill", "other"))
        assert list(library.delete("skill").shared) == ["TypedDict", "Point"]
        assert library.delete("skill").delete("other").source == ""

    def test_classes_stand_after_what_they_need(self, empty: Library) -> None:
        source = (
            "from dataclasses import dataclass\nclass Far(Near):\n    pass\n"
            "@dataclass\nclass Near:\n    steps: int = LIMIT\n"
            "    def go(self):\n        return walk(self.steps)\n"
            "LIMIT = 3\n"
        )
        library = write(empty, source + function(body="return Far().go()"))
        module: dict[str, object] = {"walk": lambda steps: f"walked {steps}", "__name__": "builtins"}
        exec(library.source, module)
        assert module["skill"]() == "walked 3"  # type: ignore[operator]

    def test_they_are_stored_with_the_policy(self, empty: Library, tmp_path: Path) -> None:
        source = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n\n\n    y: int = 1\n"
        library = write(empty, source + POINT + function("p: Point", "return P(p['x'])"))
        store = PolicyStore(tmp_path)
        store.save(library.policy(Policy(version=1)))
        assert empty.of(store.load(1)) == library
        assert "@dataclass\nclass P:" in (tmp_path / "v0001" / "skills.py").read_text()

    def test_shared_definitions_can_be_shown(self, empty: Library) -> None:
        library = write(empty, POINT + function("p: Point"))
        assert library.show("Point").startswith("# shared, used by skill\nclass Point(TypedDict):\n")

    def test_the_names_in_a_class_must_exist_too(self, empty: Library) -> None:
        assert "line 3: fly is not defined" in refusal(
            empty, "class W:\n    def go(self):\n        fly()\n" + function(body="return W()")
        )


class TestWholeModules:
    MODULE = f'''"""Skills."""

from __future__ import annotations

from typing import TypedDict

class Point(TypedDict):
    x: int

LIMIT = 3
{WALK_FAR}
def _hidden(p: Point) -> int:
    """Help."""
    return min(p["x"], LIMIT)
'''

    def test_underscored_functions_are_private(self, empty: Library) -> None:
        library = of_module(empty, self.MODULE)
        assert {each.name: each.public for each in library.skills} == {"walk_far": True, "_hidden": False}
        assert list(library.shared) == ["TypedDict", "LIMIT", "Point"]

    def test_what_a_library_writes_it_reads(self, empty: Library) -> None:
        library = of_module(empty, self.MODULE)
        assert of_module(empty, library.source) == library

    def test_functions_may_call_each_other_in_any_order(self, empty: Library) -> None:
        library = of_module(empty, RUN + WALK_FAR)
        assert call_graph(library) == {"run": ("walk_far",), "walk_far": ("walk",)}

    def test_every_problem_is_told_with_its_line(self, empty: Library) -> None:
        source = "import os\n" + function("a", body="fly()") + function() + "x = len('')\n"
        with pytest.raises(InvalidSkill) as caught:
            of_module(empty, source)
        assert str(caught.value).splitlines() == [
            "line 1: cannot import os; allowed are " + ", ".join(ALLOWED_MODULES),
            "line 2: the parameter a needs a type: " + SUPPORTED + " are allowed",
            "line 4: fly is not defined; available: look, os, skill, walk, x",
            "line 5: skill is defined twice; choose another name",
            "line 8: the constant x must be a literal value",
        ]


class TestStoredModules:
    MODULE = f'''"""Skills of policy version 1."""

import math
STEPS = 3  # to go


{WALK_FAR.strip()}


def _text() -> str:
    """Return a text that looks like code."""
    return """


def walk_far(): pass
""" + str(math.pi + STEPS)
'''
    SKILLS = (
        Skill(name="walk_far", public=True, created=1, edited=3),
        Skill(name="_text", public=False, created=2, edited=2),
    )
    POLICY = Policy(version=1, module=MODULE, skills=SKILLS)

    def test_one_of_another_layout_is_read(self, empty: Library) -> None:
        library = empty.of(self.POLICY)
        assert library.skills == self.SKILLS
        assert library.shared == {"math": "import math", "STEPS": "STEPS = 3"}
        assert texts(library)[0] == WALK_FAR.strip()
        assert library.source.startswith(
            "from __future__ import annotations\n\nimport math\n\nSTEPS = 3\n\n\n"
        )

    def test_what_a_library_writes_it_reads(self, empty: Library) -> None:
        library = empty.of(self.POLICY)
        assert empty.of(library.policy(self.POLICY)) == library
        changed = write(library, RUN, sleep=2).policy(self.POLICY)
        assert empty.of(changed).by_name["walk_far"].edited == 3

    @pytest.mark.parametrize(
        ("module", "text"),
        [
            ("", "its module should define walk_far, _text"),
            (MODULE + function(), "its module should define walk_far, _text"),
            (MODULE.replace("def _text", "def text"), "its module should define walk_far, _text"),
            (MODULE.replace("-> str:", "-> str", 1), "line 7: expected ':': def walk_far(steps: int) -> str"),
        ],
    )
    def test_a_damaged_one_is_refused_in_one_line(self, empty: Library, module: str, text: str) -> None:
        with pytest.raises(InvalidPolicy) as caught:
            empty.of(msgspec.structs.replace(self.POLICY, module=module))
        assert str(caught.value) == f"policy v0001 is no valid library: {text}"

    def test_one_that_is_not_trusted_is_judged(self, empty: Library) -> None:
        strange = msgspec.structs.replace(self.POLICY, module=self.MODULE.replace("walk(", "wlk("))
        assert empty.of(strange).skills == self.SKILLS
        with pytest.raises(InvalidPolicy, match="walk_far, line 3: wlk is not defined; did you mean walk"):
            empty.of(strange, trusted=False)


class TestManyFunctions:
    COUNT = 2000

    @pytest.fixture(scope="class")
    @classmethod
    def many(cls) -> Library:
        functions = "\n\n\n".join(
            f'def step_{n}(a: int) -> str:\n    """Walk."""\n    return walk(steps=a)'
            for n in range(cls.COUNT)
        )
        return Library(Corridor().primitives).write(functions, sleep=1, limit=MODULE_BYTES)

    def test_a_library_holds_them_and_goes_on(self, many: Library) -> None:
        library = write(many, WALK_FAR.replace("walk(steps=steps)", "step_7(steps)"))
        library = library.rename("step_7", "step", sleep=2).delete("step_8")
        assert len(library.skills) == self.COUNT
        assert call_graph(library)["walk_far"] == ("step",)
        assert many.of(library.policy(Policy(version=1))) == library

    def test_not_all_of_their_names_are_told(self, many: Library) -> None:
        with pytest.raises(InvalidSkill) as caught:
            many.delete("xyz")
        assert len(str(caught.value)) < 1_000
        assert str(caught.value).endswith("step_1040, step_1041, 1950 others")

    def test_nor_all_problems(self, empty: Library) -> None:
        body = "\n    ".join(f"xyz_{n}" for n in range(100))
        lines = refusal(empty, function(body=body)).splitlines()
        assert len(lines) == 21
        assert lines[-1] == "and 80 more"


class TestTheFunctionItself:
    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("def skill(:\n", "line 1: "),
            ("", "the source must define a function at the top level"),
            ("LIMIT = 1\n", "the source must define a function at the top level"),
            (function() + function(), "line 4: skill is defined twice; choose another name"),
            (
                function() + "print('hello')\n",
                "line 4: only imports, constants, classes and functions are a",
            ),
            ("async " + function(), "line 1: async code is not allowed in a skill; use plain def"),
            ("import functools\n@functools.cache\n" + function(), "line 2: a skill cannot be decorated"),
            (
                "print('hello')\n" + function(),
                "line 1: only imports, constants, classes and functions are a",
            ),
            (
                "class Walker:\n    x = [print() for _ in 'a']\n    print()\n" + function(),
                "line 3: a class can contain only fields and",
            ),
            (
                "class Walker:\n    async def go(self): pass\n" + function(),
                "line 2: async code is not allowed",
            ),
            (
                "class Walker(metaclass=type):\n    pass\n" + function(),
                "line 1: the only keyword that a class can have",
            ),
            ("@print\nclass Walker:\n    pass\n" + function(), "line 1: dataclass is the only decorator"),
            (
                f"class W:\n    x = '{'x' * CLASS_LIMIT}'\n" + function(),
                "line 1: the class W has 2019 characters",
            ),
            (
                "class P:\n    x: int\n" + function("p: P"),
                "line 3: the parameter p cannot be P (P is not a TypedDict)",
            ),
            (
                POINT.replace("(TypedDict)", "(TypedDict, total=open)") + function("p: Point"),
                "line 3: the only keyword that a class can have is the total of TypedDict",
            ),
            (TREE + function("p: Tree"), "the parameter p cannot be Tree (Tree contains itself)"),
            (
                POINT.replace("x: int", "x: set") + function("p: Point"),
                "the parameter p cannot be Point: str, int",
            ),
            (function("*steps: int"), "line 1: variable arguments are not allowed; name each (steps)"),
            (function("**steps: int"), "line 1: variable arguments are not allowed; name each (steps)"),
            (function("steps: int, /"), "line 1: steps must be passable by name"),
            (function("steps"), "line 1: the parameter steps needs a type: str, int, float, bool, Literal"),
            (function("a: dict"), "line 1: the parameter a cannot be dict: str, int, float, bool, Literal"),
            (function("a: str | None = None"), "the parameter a cannot be str | None"),
            (function("a: list"), "the parameter a cannot be list"),
            (function("a: list[set[int]]"), "the parameter a cannot be list[set[int]]"),
            (function("a: Literal[1.5]"), "the parameter a cannot be Literal[1.5]"),
            (function("a: Literal[open]"), "the parameter a cannot be Literal[open]"),
            (function("a: int = len('x')"), "line 1: the default of a must be a literal value"),
            (function("a: int = len('x'), b: int = 1"), "line 1: the default of a must be a literal value"),
            (function("a: int = 'x'"), "line 1: the default of a cannot be 'x': use its type or None"),
            (function("a: float = 1e999"), "the default of a cannot be 1e999"),
            (function("a: float = 1j"), "the default of a cannot be 1j"),
            (function("a: list[int] = {1, 2}"), "the default of a cannot be {1, 2}"),
            (function(doc=""), "line 1: skill needs a docstring"),
            (function(doc='"""  """'), "line 1: skill needs a docstring"),
            (function(body="import os"), "line 3: cannot import os; allowed are collections, copy"),
            (function(body="from os.path import join"), "line 3: cannot import os.path"),
            (function(body="from . import secrets"), "line 3: cannot import ."),
            ("import sys\n" + function(), "line 1: cannot import sys"),
            ("import os.path\n" + function(body="return os.sep"), "line 1: cannot import os.path"),
            ("from math import *\n" + function(), "line 1: import names one by one instead of *"),
            ("from math import pie\n" + function(), "line 1: math has no pie"),
            (function(body="global place; place = 1"), "line 3: global is not allowed"),
            (function(body="yield walk()"), "line 1: skill yields; a skill must return its result"),
            (function(body="return open('x')"), "line 3: open is not available to skills"),
            (function(body="return eval('1')"), "line 3: eval is not available to skills"),
            ("LIMIT = len('abc')\n" + function(), "line 1: the constant LIMIT must be a literal value"),
            (function(body="break"), "line 3: 'break' outside loop"),
            (function(body="x = '\0'"), "cannot contain null bytes"),
            (function(body="x = '\ud800'"), "the source is not valid Python: "),
            (function(doc='"""\\ud800"""'), "line 1: the docstring of skill is not valid Unicode text"),
            (function('a: str = "\\ud800"'), "line 1: the default of a must be a literal value"),
            (function(body="return " + "(" * 500 + ")" * 500), "too many nested parentheses"),
            (function(body="x = 1\n    return " + "-" * 5000 + "1"), "line 4: the code is nested too deeply"),
            (function(body="return (1 +\n" + "-\\\n" * 5000 + "1)"), "line 3: the code is nested too deeply"),
            (
                function(body="return " + "1 + " * 400 + "1"),
                "line 3: the code is nested too deeply; 300 levels",
            ),
            (function(f"a: {'list[' * 5}int{']' * 5}"), "line 1: the parameter a cannot be list[list[list["),
            (function(f"a: {'list[' * 5}int{']' * 5}"), "(its type is nested more than 4 levels deep): str"),
            (
                WIDE + function("a: F4"),
                "the parameter a cannot be F4 (its type is nested more than 4 levels deep)",
            ),
            (
                WIDE + function("a: F3"),
                "the parameter a cannot be F3 (its parameters hold more than 50 types)",
            ),
            (
                function("a: Literal[0x10000000000000000]"),
                "a cannot be Literal[0x10000000000000000] (it is of a type that is not supported)",
            ),
            (function(f"a: int = 0x{'f' * 9000}"), f"the default of a cannot be 0x{'f' * 78}...: use its"),
            (function("a: (b := int)"), "line 1: 'named expression' can not be used"),
            ("__builtins__ = {}\n" + function(), "line 1: __builtins__ is reserved by Python"),
            ("import math as __name__\n" + function(), "line 1: __name__ is reserved by Python"),
            ("from random import _os\n" + function(), "line 1: _os is not a public name of random"),
            (function(body="from dataclasses import sys"), "line 3: sys is not a public name of dataclasses"),
            (
                function(body="del missing"),
                "line 3: missing cannot be deleted: skill assigns no such variable",
            ),
            ("LIMIT = 1\n" + function(body="del LIMIT"), "line 4: LIMIT cannot be deleted: skill assigns no"),
            (function(body=f"return '{'x' * SOURCE_LIMIT}'"), f"{SOURCE_LIMIT} are allowed"),
            (function().replace("skill", "s" * 65), "cannot name a skill"),
            (function().replace("skill", "schritt_für_schritt"), "cannot name a skill"),
            (function().replace("skill", "__init__"), "cannot name a skill"),
        ],
    )
    def test_what_is_refused(self, empty: Library, source: str, text: str) -> None:
        assert text in refusal(empty, source)

    @pytest.mark.parametrize(
        "parameters",
        ["steps", "cells: dict[str, set[int]]", "walker: Walker", "a: dict = None, b: str | None = 'x'"],
    )
    def test_what_skills_alone_call_takes_anything(self, empty: Library, parameters: str) -> None:
        source = "class Walker:\n    pass\n\n" + function(parameters)
        library = write(empty, source, public=False)
        assert str(library.signature("skill")) == f"({parameters})"
        assert "cannot be offered as a tool: skill." in visibility_refusal(library)
        assert not library.can_be_tool("skill")
        assert "line 4: the parameter" in refusal(empty, source)

    @pytest.mark.parametrize(
        ("statement", "use"),
        [
            ("import collections.abc", "collections.abc.Sized"),
            ("import os.path as join", "join"),
            ("from os import path", "path"),
            ("from math import *", "sqrt(2)"),
        ],
    )
    def test_names_of_a_refused_import_are_not_reported_too(
        self, empty: Library, statement: str, use: str
    ) -> None:
        text = refusal(empty, f"{statement}\n" + function(body=f"return {use}"))
        assert len(text.splitlines()) == 1
        assert text.startswith("line 1: ")

    def test_what_an_edit_is_too_long_for_is_too_long_in_a_module(self, empty: Library) -> None:
        constant = f"LIMIT = '{'x' * SOURCE_LIMIT}'\n"
        text = f"line 1: LIMIT has {SOURCE_LIMIT + 10} characters; {SOURCE_LIMIT} are allowed"
        with pytest.raises(InvalidSkill, match=f"^{text}$"):
            of_module(empty, constant + function(body="return LIMIT"))
        with pytest.raises(InvalidSkill, match=r"^line 1: skill has .* characters; 20000 are allowed"):
            of_module(empty, function(body=f"return '{'x' * SOURCE_LIMIT}'"))

    def test_a_library_has_a_limit_too(self, empty: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("speedrunner.library.source.MODULE_BYTES", 200)
        library = write(empty, WALK_FAR)
        with pytest.raises(InvalidSkill, match=r"^the module has more than 200 bytes, the limit$"):
            write(write(library, RUN), function())

    @pytest.mark.parametrize("public", [True, False])
    def test_an_async_function_is_refused_whoever_may_call_it(self, empty: Library, public: bool) -> None:
        assert "not allowed in a skill; use plain def" in refusal(empty, "async " + function(), public)
        library = write(empty, WALK_FAR, public)
        with pytest.raises(InvalidSkill, match="not allowed in a skill; use plain def"):
            library.edit("walk_far", "def", "async def", sleep=2)

    def test_all_problems_are_told_at_once_in_the_order_of_lines(self, empty: Library) -> None:
        source = "import os\ndef skill(a, *b: int):\n    import sys\n    return 1\n"
        lines = refusal(empty, source).splitlines()
        assert [line.split(":")[0] for line in lines] == ["line 1", "line 2", "line 2", "line 2", "line 3"]

    @pytest.mark.parametrize("module", ALLOWED_MODULES)
    def test_the_allowed_modules(self, empty: Library, module: str) -> None:
        write(empty, function(body=f"import {module}"))

    def test_generators_inside_a_skill_are_allowed(self, empty: Library) -> None:
        body = "def inner():\n        yield 1\n    return sum(inner()) + sum(x for x in range(3))"
        write(empty, function(body=body))

    def test_validation_runs_nothing(self, empty: Library, capsys: pytest.CaptureFixture[str]) -> None:
        refusal(empty, "print('ran')\n" + function("a: int = print('ran')", "print('ran')"))
        write(empty, function(body="print('ran')"))
        assert capsys.readouterr().out == ""


class TestNames:
    def test_calls_to_what_does_not_exist_name_near_matches(self, empty: Library) -> None:
        library = write(empty, WALK_FAR)
        text = refusal(library, function(body="walk_fat(1)\n    lok()"))
        assert text == (
            "line 3: walk_fat is not defined; did you mean walk_far or walk?\n"
            "line 4: lok is not defined; did you mean look?"
        )

    def test_names_far_from_all_are_answered_with_all(self, empty: Library) -> None:
        assert refusal(empty, function(body="teleport()")) == (
            "line 3: teleport is not defined; available: look, skill, walk"
        )

    def test_a_name_used_as_a_value_must_exist_too(self, empty: Library) -> None:
        assert "line 3: jump is not defined" in refusal(empty, function(body="return list(map(jump, [1]))"))

    def test_local_names_are_no_concern_of_the_library(self, empty: Library) -> None:
        body = (
            "def step(n):\n        return [walk(steps=i) for i in range(n)]\n"
            "    input = step(2)\n    (lambda far: far)(input)\n"
            "    try:\n        pass\n    except ValueError as error:\n        return error\n"
            "    class Place:\n        x: Anything = 1\n    return Place"
        )
        write(empty, function(body=body))

    @pytest.mark.parametrize(
        "body",
        [
            "for n in range(3):\n        if n: print(last)\n        last = n",
            "[last := n for n in range(3)]\n    return last",
            "last = 1\n    def inner():\n        nonlocal last\n        last += 1\n    inner()",
            "last = 1\n    del last\n    last = 2\n    return last",
            "try:\n        look()\n    except ValueError as last: pass\n    last = 1",
            "match look():\n        case [first, *last]: return first, last",
        ],
    )
    def test_a_variable_is_the_function_s_own_wherever_it_is_assigned(
        self, empty: Library, body: str
    ) -> None:
        write(empty, function(body=body))

    def test_names_must_exist_even_where_an_error_is_expected(self, empty: Library) -> None:
        body = "try:\n        fly()\n    except NameError: pass"
        assert "line 4: fly is not defined" in refusal(empty, function(body=body))

    def test_annotations_that_are_never_evaluated_need_not_resolve(self, empty: Library) -> None:
        write(empty, 'def skill() -> Optional[Any]:\n    """Do it."""\n    x: Any = 1\n    return x\n')

    @pytest.mark.parametrize(
        ("name", "what"),
        [
            ("walk", "a primitive"),
            ("print", "a Python builtin"),
            ("open", "a Python builtin"),
            ("submit_answer", "a tool of the actor"),
        ],
    )
    def test_taken_names(self, empty: Library, name: str, what: str) -> None:
        assert f"{name} is already {what}" in refusal(empty, function().replace("skill", name))

    @pytest.mark.parametrize(
        ("source", "line"),
        [
            (function("walk: int"), 1),
            (function(body="walk = 1"), 3),
            (function(body="x = 1\n    for walk in 'a': pass"), 4),
            (function(body="def walk(): pass"), 3),
            (function(body="class walk: pass"), 3),
            (function(body="x = [\n        walk for walk in 'a']"), 4),
            (function(body="x = lambda walk: 1"), 3),
            (function(body="import math as walk"), 3),
            (function(body="def inner(x, *walk): pass"), 3),
            (function(body="try:\n        pass\n    except ValueError as walk: pass"), 5),
            (function(body="match 1:\n        case walk: pass"), 4),
            (function(body="print(walk := 1)"), 3),
            ("class W:\n    def go(self, walk): pass\n" + function(body="return W()"), 2),
        ],
    )
    def test_no_code_hides_a_primitive_from_itself(self, empty: Library, source: str, line: int) -> None:
        assert refusal(empty, source) == f"line {line}: walk is already a primitive; choose another name"

    def test_fields_and_methods_hide_nothing(self, empty: Library) -> None:
        methods = "class W:\n    look: str = ''\n    def walk(self): return walk()\n"
        write(empty, methods + function(body="return W().walk()"))

    @pytest.mark.parametrize("name", ["top", "skill"])
    def test_local_names_of_a_function_of_any_name(self, empty: Library, name: str) -> None:
        body = "def top(a):\n        b = a\n        return b, walk\n    c = top(1)\n    return c, lok()"
        text = refusal(empty, function("d: int", body).replace("skill", name))
        assert text == "line 7: lok is not defined; did you mean look?"

    @pytest.mark.parametrize("statement", ["walk = 1", "import math as look", "skill = 2"])
    def test_constants_and_imports_take_no_names_either(self, empty: Library, statement: str) -> None:
        assert "choose another name" in refusal(empty, f"{statement}\n{function()}")


class TestPreamble:
    MATHS = 'import math\nfrom re import sub as s\nSTEPS = [1, 2]\n\ndef skill():\n    """Do it."""\n'

    def test_imports_and_constants_before_the_function_join_the_module(self, empty: Library) -> None:
        library = write(empty, self.MATHS + "    return math.pi, s, STEPS\n")
        assert list(library.shared.values()) == ["from re import sub as s", "import math", "STEPS = [1, 2]"]
        assert texts(library)[0].startswith("def skill")

    def test_what_no_skill_mentions_is_dropped(self, empty: Library) -> None:
        library = write(empty, self.MATHS + "    return STEPS\n")
        assert library.shared == {"STEPS": "STEPS = [1, 2]"}
        assert library.delete("skill").source == ""

    def test_another_skill_may_use_it(self, empty: Library) -> None:
        library = write(empty, self.MATHS + "    return STEPS\n")
        library = write(library, function(body="return STEPS").replace("skill", "other"))
        assert library.delete("skill").shared == {"STEPS": "STEPS = [1, 2]"}

    def test_an_edit_cannot_change_what_others_use(self, empty: Library) -> None:
        library = write(empty, self.MATHS + "    return STEPS\n")
        text = refusal(library, "STEPS = 3\n" + function(body="return STEPS").replace("skill", "other"))
        assert text == (
            "line 1: STEPS is already `STEPS = [1, 2]`, used by skill;"
            " choose another name, or edit STEPS itself"
        )

    def test_ones_own_constant_can_be_changed(self, empty: Library) -> None:
        library = write(empty, self.MATHS + "    return STEPS\n")
        changed = write(library, "STEPS = 3\n" + function(body="return STEPS"), sleep=2)
        assert changed.shared == {"STEPS": "STEPS = 3"}
        assert changed.skills[0].edited == 2


class TestSignatures:
    def test_types_and_defaults_are_real_objects(self, empty: Library) -> None:
        parameters = 'a: str, b: list[list[int]], c: Literal["x", 2] = "x", *, d: float = -1.5, e: int = None'
        signature = write(empty, function(parameters)).signature("skill")
        found = {each.name: (each.annotation, each.default) for each in signature.parameters.values()}
        assert found == {
            "a": (str, inspect.Parameter.empty),
            "b": (list[list[int]], inspect.Parameter.empty),
            "c": (Literal["x", 2], "x"),
            "d": (float, -1.5),
            "e": (int, None),
        }
        assert signature.parameters["d"].kind is inspect.Parameter.KEYWORD_ONLY

    def test_tools_are_the_primitives_then_the_longest_unchanged_skills(self, empty: Library) -> None:
        library = write(empty, function().replace("skill", "b_late"), sleep=2)
        library = write(library, function().replace("skill", "z_early"), sleep=1)
        library = write(library, function().replace("skill", "a_late"), sleep=2)
        library = write(library, function().replace("skill", "hidden"), public=False)
        assert [each.name for each in library.tools()] == ["walk", "look", "z_early", "a_late", "b_late"]

    def test_public_skills_must_pass_the_check(self) -> None:
        def check(spec: ToolSpec) -> None:
            raise InvalidTool(f"{spec.name} cannot be decoded")

        library = Library(Corridor().primitives, check=check)
        assert refusal(library, WALK_FAR) == (
            "walk_far cannot be offered as a tool: walk_far cannot be decoded"
        )
        write(library, WALK_FAR, public=False)

    def test_an_edited_library_keeps_its_check(self) -> None:
        checked: list[str] = []
        library = Library(Corridor().primitives, check=lambda spec: checked.append(spec.name))
        write(write(library, WALK_FAR), RUN)
        assert checked == ["walk_far", "run"]


class TestModule:
    def test_the_call_graph_holds_skills_and_primitives(self, empty: Library) -> None:
        library = write(write(write(empty, WALK_FAR), RUN), function("n: int", "return skill(n), look()"))
        assert call_graph(library) == {
            "walk_far": ("walk",),
            "run": ("walk_far",),
            "skill": ("look", "skill"),
        }

    def test_the_module_runs_with_the_primitives_among_its_globals(self, empty: Library) -> None:
        library = write(write(empty, WALK_FAR), "LENGTH = 10\n" + RUN.replace("10", "LENGTH"))
        module = {"walk": lambda steps: f"walked {steps}"}
        exec(library.source, module)
        assert module["run"]() == "walked 10"  # type: ignore[call-arg]

    def test_a_module_of_types_that_are_not_imported_still_loads(self, empty: Library) -> None:
        module: dict[str, object] = {}
        exec(write(empty, function('a: Literal["x"] = "x"')).source, module)
        assert "skill" in module

    def test_an_empty_library_is_a_module_too(self, empty: Library) -> None:
        exec(empty.source, {})


def test_a_module_that_an_earlier_version_stored_is_read() -> None:
    stored = (
        '"""Skills of policy version 1."""\n\nimport math\nLIMIT = 4\n\n\n'
        'def far() -> str:\n    """Walk."""\n    return walk(int(math.sqrt(LIMIT)))\n'
    )
    policy = Policy(version=1, module=stored, skills=(Skill(name="far", public=True, created=1, edited=1),))
    library = Library(Corridor().primitives).of(policy, trusted=False)
    assert [each.name for each in library.tools()] == ["walk", "look", "far"]
    assert library.shared == {"math": "import math", "LIMIT": "LIMIT = 4"}


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("a=b;" * (TOKEN_LIMIT // 4 + 1), "words and signs"),
        ("\n\n\n".join(["def f(): 0"] * (TOKEN_LIMIT // 6 + 1)), "words and signs"),
        ("a=b;" * (DEFINITION_LIMIT + 1), "definitions"),
        (f"import {', '.join(['a'] * (DEFINITION_LIMIT + 1))}", "definitions"),
        ("\n\n\n".join(["def f(): 0"] * (DEFINITION_LIMIT + 1)), "definitions"),
        ("#" * (MODULE_BYTES + 1), "bytes"),
        ("#" + "\u00e4" * (MODULE_BYTES // 2), "bytes"),
    ],
)
def test_a_module_that_would_take_long_to_parse_is_refused_before(
    empty: Library, source: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(version=1, module=source, skills=())
    with pytest.raises(InvalidPolicy, match=f"has more than .* {what}, the limit"):
        empty.of(policy)
    with pytest.raises(InvalidSkill, match=f"has more than .* {what}, the limit|characters; .* are allowed"):
        of_module(empty, source)
    if what != "definitions":  # those are counted in the tree
        monkeypatch.setattr("speedrunner.library.source.ast.parse", None)
        with pytest.raises(InvalidSkill, match=what):
            read_text(source)
