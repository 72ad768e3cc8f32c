"""The skill library: what an edit may say, what it changes, and how refusals read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec
import pytest

from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from speedrunner.library.library import EMPTY, Library
from speedrunner.library.rules import SOURCE_LIMIT, InvalidSkill
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Policy, Skill
from tests.golden_tables import Golden, refusals
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


@pytest.fixture
def empty() -> Library:
    return Library(Corridor().primitives)


def write(library: Library, source: str, public: bool | None = True, sleep: int = 1) -> Library:
    return library.write(source, public=public, sleep=sleep)


def of_module(library: Library, source: str) -> Library:
    return library.write(source, sleep=0)


def texts(library: Library) -> list[str]:
    """The functions' own texts."""
    return [library.named[each.name].source for each in library.skills]


def call_graph(library: Library) -> dict[str, tuple[str, ...]]:
    return {name: library.calls(name) for name in library.by_name}


def function(parameters: str = "", body: str = "return None", doc: str = '"""Do it."""') -> str:
    return f"def skill({parameters}):\n    {doc}\n    {body}\n"


ANYTHING = ("steps", "cells: dict[str, set[int]]", "walker: Walker", "a: dict = None, b: str | None = 'x'")
"""Parameters that no tool can have."""
RING = "".join(
    function(body=f"return {called}()").replace("skill", name)
    for name, called in [("ping", "pang"), ("pang", "pong"), ("pong", "ping")]
)


class TestEdits:
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

    def test_skills_that_call_each_other_are_taken_apart_before(self, empty: Library) -> None:
        library = of_module(empty, RING).edit("pong", "ping()", "None", sleep=2)
        assert library.delete("ping").delete("pang").delete("pong") == empty


PAIR = RUN.replace("walk_far", "_far") + WALK_FAR.replace("walk_far", "_far")


def test_a_helper_is_written_together_with_its_caller(empty: Library) -> None:
    library = write(empty, f"LENGTH = 3\n{PAIR}".replace("10", "LENGTH"), public=None, sleep=4)
    assert [(each.name, each.public) for each in library.skills] == [("run", True), ("_far", False)]
    assert call_graph(library) == {"run": ("_far",), "_far": ("walk",)}
    assert {each.created for each in library.skills} == {4}


def test_a_shared_constant_can_be_edited_for_all_who_use_it(empty: Library) -> None:
    library = write(empty, "STEPS = 2\n" + function(body="return STEPS"))
    library = write(library, function(body="return STEPS").replace("skill", "other"))
    library = write(library, WALK_FAR).edit("STEPS", "2", "3", sleep=5)
    assert library.shared == {"STEPS": "STEPS = 3"}
    assert {each.name: each.edited for each in library.skills} == {"skill": 5, "other": 5, "walk_far": 1}


def test_renaming_changes_only_references(empty: Library) -> None:
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


def test_a_stored_module_of_another_layout_is_read(empty: Library) -> None:
    library = empty.of(POLICY)
    assert library.skills == SKILLS
    assert library.shared == {"math": "import math", "STEPS": "STEPS = 3"}
    assert texts(library)[0] == WALK_FAR.strip()
    assert library.source.startswith("from __future__ import annotations\n\nimport math\n\nSTEPS = 3\n\n\n")


def test_a_text_that_looks_like_another_function_stays_in_its_own(empty: Library) -> None:
    source = 'def walk_far() -> str:\n    """Say."""\n    return """\n\n\ndef go():\n"""'
    assert texts(empty.of(Policy(version=1, module=f"{source}\n", skills=(SKILLS[0],)))) == [source]


def test_the_annotated_source_says_who_may_call_and_wrote_each_skill_and_ends_with_notes(
    empty: Library,
) -> None:
    library = write(
        write(empty, "UNIT = 2\n" + function("n: int", "return walk(n * UNIT)"), public=False),
        RUN.replace("walk_far", "skill"),
    )
    library = library.edit("run", "10", "11", sleep=2)
    shared, skill, run = library.annotated_source().split("\n\n\n")
    assert (shared, skill.split("\n")[0]) == ("UNIT = 2", "# private, from sleep 1")
    assert run.startswith("# public, from sleep 1, edited in sleep 2\ndef run()")
    notes = "# notes for the actor\nWalls hurt."
    assert library.annotated_source("Walls hurt.").endswith(f"(11)\n\n\n{notes}")
    assert (empty.annotated_source(), empty.annotated_source("Walls hurt.")) == (EMPTY, notes)


@pytest.mark.parametrize(
    "body",
    [
        "for n in range(3):\n        if n: print(last)\n        last = n",
        "[last := n for n in range(3)]\n    return last",
        "last = 1\n    def inner():\n        nonlocal last\n        last += 1\n    inner()",
        "last = 1\n    del last\n    last = 2\n    return last",
        "try:\n        look()\n    except ValueError as last: pass\n    last = 1",
        "match look():\n        case [first, *last]: return first, last",
        "def step(n):\n        return [walk(steps=i) for i in range(n)]\n    input = step(2)",
        "(lambda far: far)(1)\n    class Place:\n        x: Anything = 1\n    return Place",
    ],
)
def test_a_variable_is_the_function_s_own_wherever_it_is_assigned(empty: Library, body: str) -> None:
    write(empty, function(body=body))


MATHS = 'import math\nfrom re import sub as s\nSTEPS = [1, 2]\n\ndef skill():\n    """Do it."""\n'


def test_imports_and_constants_before_the_function_join_the_module(empty: Library) -> None:
    library = write(empty, MATHS + "    return math.pi, s, STEPS\n")
    assert list(library.shared.values()) == ["from re import sub as s", "import math", "STEPS = [1, 2]"]
    assert texts(library)[0].startswith("def skill")


def test_what_no_skill_mentions_is_dropped(empty: Library) -> None:
    library = write(empty, MATHS + "    return STEPS\n")
    assert library.shared == {"STEPS": "STEPS = [1, 2]"}
    assert library.delete("skill").source == ""


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

    def test_an_edited_library_keeps_its_check(self) -> None:
        checked: list[str] = []
        library = Library(Corridor().primitives, check=lambda spec: checked.append(spec.name))
        write(write(library, WALK_FAR), RUN)
        assert checked == ["walk_far", "run"]


@pytest.mark.parametrize("parameters", ANYTHING)
def test_what_skills_alone_call_takes_anything(empty: Library, parameters: str) -> None:
    library = write(empty, function(parameters), public=False)
    assert str(library.signature("skill")) == f"({parameters})"
    assert not library.can_be_tool("skill")
    with pytest.raises(InvalidSkill, match="cannot be offered as a tool"):
        library.set_visibility("skill", public=True, sleep=0)


def test_validation_runs_nothing(empty: Library, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSkill):
        write(empty, "print('ran')\n" + function("a: int = print('ran')", "print('ran')"))
    write(empty, function(body="print('ran')"))
    assert capsys.readouterr().out == ""


HIDING_WALK = {
    "a parameter": function("walk: int"),
    "a variable": function(body="walk = 1"),
    "a loop variable": function(body="x = 1\n    for walk in 'a': pass"),
    "an inner function": function(body="def walk(): pass"),
    "an inner class": function(body="class walk: pass"),
    "the variable of a comprehension": function(body="x = [\n        walk for walk in 'a']"),
    "a lambda's parameter": function(body="x = lambda walk: 1"),
    "an import": function(body="import math as walk"),
    "an inner function's parameter": function(body="def inner(x, *walk): pass"),
    "a caught exception": function(body="try:\n        pass\n    except ValueError as walk: pass"),
    "a pattern": function(body="match 1:\n        case walk: pass"),
    "a walrus": function(body="print(walk := 1)"),
}
INNER = "def top(a):\n        b = a\n        return b, walk\n    c = top(1)\n    return c, lok()"
REFUSED = {
    "no text": "",
    "no function": "LIMIT = 1\n",
    "a function twice": function() + function(),
    "a statement after the function": function() + "print('hello')\n",
    "a statement before the function": "print('hello')\n" + function(),
    "an async function": "async " + function(),
    "a decorator": "import functools\n@functools.cache\n" + function(),
    "a class": "class Walker:\n    pass\n" + function(body="return Walker()"),
    "a class of no use": "class P:\n    x: int\n" + function("p: P"),
    "*steps": function("*steps: int"),
    "**steps": function("**steps: int"),
    "a positional parameter": function("steps: int, /"),
    "a parameter without a type": function("steps"),
    **{
        f"a parameter: {kind}": function(f"a: {kind}")
        for kind in (
            *("dict", "str | None = None", "list", "list[set[int]]", "Literal[1.5]", "Literal[open]"),
            "Literal[0x10000000000000000]",
        )
    },
    "a default that is a call": function("a: int = len('x')"),
    "a default that is a call, before another": function("a: int = len('x'), b: int = 1"),
    "a default of another type": function("a: int = 'x'"),
    "a default: 1e999": function("a: float = 1e999"),
    "a default: 1j": function("a: float = 1j"),
    "a default: {1, 2}": function("a: list[int] = {1, 2}"),
    "a default with 9000 digits": function(f"a: int = 0x{'f' * 9000}"),
    "a default that is no Unicode": function('a: str = "\\ud800"'),
    "no docstring": function(doc=""),
    "a docstring of spaces": function(doc='"""  """'),
    "a docstring that is no Unicode": function(doc='"""\\ud800"""'),
    "import os": function(body="import os"),
    "import from os.path": function(body="from os.path import join"),
    "import from .": function(body="from . import secrets"),
    "import sys above": "import sys\n" + function(),
    "import os.path above": "import os.path\n" + function(body="return os.sep"),
    "import of all": "from math import *\n" + function(),
    "import of what is missing": "from math import pie\n" + function(),
    **{
        f"a refused import whose name is used: {statement}": f"{statement}\n" + function(body=f"return {use}")
        for statement, use in (
            ("import collections.abc", "collections.abc.Sized"),
            ("import os.path as join", "join"),
            ("from os import path", "path"),
            ("from math import *", "sqrt(2)"),
        )
    },
    "global": function(body="global place; place = 1"),
    "yield": function(body="yield walk()"),
    "open": function(body="return open('x')"),
    "eval": function(body="return eval('1')"),
    "a constant that is a call": "LIMIT = len('abc')\n" + function(),
    "deep code: unary": function(body="x = 1\n    return " + "-" * 5000 + "1"),
    "deep code: unary over lines": function(body="return (1 +\n" + "-\\\n" * 5000 + "1)"),
    "deep code: binary": function(body="return " + "1 + " * 400 + "1"),
    "deep type: lists": function(f"a: {'list[' * 5}int{']' * 5}"),
    "__builtins__": "__builtins__ = {}\n" + function(),
    "__name__": "import math as __name__\n" + function(),
    "del of what is missing": function(body="del missing"),
    "a function that is too long": function(body=f"return '{'x' * SOURCE_LIMIT}'"),
    "a name that is too long": function().replace("skill", "s" * 65),
    "a name that is not ASCII": function().replace("skill", "schritt_für_schritt"),
    "a name of Python": function().replace("skill", "__init__"),
    **{
        f"a taken name: {name}": function().replace("skill", name)
        for name in ("walk", "print", "open", "submit_answer")
    },
    **{
        f"a taken name: {statement}": f"{statement}\n{function()}"
        for statement in ("walk = 1", "import math as look", "skill = 2")
    },
    **{f"walk hidden by {what}": source for what, source in HIDING_WALK.items()},
    "an undefined name in the second function": PAIR.replace("walk(", "wlk("),
    "an undefined name far from all": function(body="teleport()"),
    "an undefined name as a value": function(body="return list(map(jump, [1]))"),
    "an undefined name where its error is caught": (
        function(body="try:\n        fly()\n    except NameError: pass")
    ),
    "an undefined name after local ones": function("d: int", INNER),
    "an undefined name after local ones of a function called as the inner one": (
        function("d: int", INNER).replace("skill", "top")
    ),
    **{f"a public skill: ({parameters})": function(parameters) for parameters in ANYTHING},
    "a source in a code fence": f"```python\n{function()}\n```",
    "five problems": "import os\ndef skill(a, *b: int):\n    import sys\n    return 1\n",
    "100 problems": function(body="\n    ".join(f"xyz_{n}" for n in range(100))),
}
"""Sources by what is wrong with them."""


class TestRefusals:
    def test_every_problem_of_a_source_has_a_line(self, empty: Library, golden: Golden) -> None:
        tries = {what: partial(write, empty, source) for what, source in REFUSED.items()}
        golden("library/refused_sources.txt", refusals(tries, InvalidSkill, one_line=False))

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("def skill(:\n", "^line 1: "),
            (function(body="break"), "^line 3: 'break' outside loop"),
            (function(body="x = '\0'"), "cannot contain null bytes"),
            (function(body="x = '\ud800'"), "the source is not valid Python: "),
            (function(body="return " + "(" * 500 + ")" * 500), "too many nested parentheses"),
            (function("a: (b := int)"), "^line 1: 'named expression' can not be used"),
        ],
    )
    def test_python_s_own_messages_are_passed_on(self, empty: Library, source: str, text: str) -> None:
        with pytest.raises(InvalidSkill, match=text):
            write(empty, source)

    def test_edits_that_do_not_suit_the_library(self, empty: Library, golden: Golden) -> None:
        library = write(write(empty, WALK_FAR), RUN)
        shadow = "def inner():\n        walk_far = 1\n        return walk_far\n    return walk_far(1)"
        steps = write(empty, "STEPS = [1, 2]\n" + function(body="return STEPS"))
        cut = write(empty, "from math import floor as cut\n" + function(body="return cut(1.5)"))
        edit = partial(library.edit, "walk_far", sleep=2)
        rename = partial(library.rename, "walk_far", sleep=2)
        taken = ("run", "walk", "print", "walk far", "class", "__far", "steps")
        tries: dict[str, Callable[[], object]] = {
            "call what is almost there": partial(write, library, function(body="walk_fat(1)\n    lok()")),
            "show what is missing": partial(library.show, "walk_fra"),
            "delete what is missing": partial(library.delete, "walk_fra"),
            "delete what another skill calls": partial(library.delete, "walk_far"),
            "delete one of a ring": partial(of_module(empty, RING).delete, "ping"),
            "edit: three places": partial(edit, "steps", "n"),
            "edit: no text": partial(edit, "", "n"),
            "edit: other spaces": partial(edit, "return walk(n=steps)", ""),
            "edit: no such text": partial(edit, "zzz", "n"),
            "edit: another name": partial(edit, "def walk_far", "def far"),
            "edit: a second function": partial(edit, "def walk_far", f"{RUN.strip()}\ndef walk_far"),
            "edit: an undefined name": partial(edit, "walk(steps", "wlk(steps"),
            "edit: async": partial(edit, "def", "async def"),
            "edit a private skill: async": partial(
                write(empty, WALK_FAR, public=False).edit, "walk_far", "def", "async def", sleep=2
            ),
            "write a private skill: async": partial(write, empty, "async " + function(), public=False),
            "edit an import: a missing name": partial(cut.edit, "cut", "floor", "flor", sleep=2),
            **{f"rename to {name}": partial(rename, name) for name in taken},
            "rename to a long name": partial(rename, "n" * 65),
            "rename where a caller has such a variable": partial(
                write(library, function(body=shadow)).rename, "walk_far", "stride", sleep=2
            ),
            "write another value of a constant in use": partial(
                write, steps, "STEPS = 3\n" + function(body="return STEPS").replace("skill", "other")
            ),
            "write a module of five problems": partial(
                of_module, empty, "import os\n" + function("a", body="fly()") + function() + "x = len('')\n"
            ),
        }
        golden("library/refused_edits.txt", refusals(tries, InvalidSkill, one_line=False))

    def test_a_tool_must_pass_the_check_when_it_is_written_and_when_it_is_shown(self) -> None:
        def check(spec: ToolSpec) -> None:
            raise InvalidTool(f"{spec.name} cannot be decoded")

        library = Library(Corridor().primitives, check=check)
        hidden = write(library, WALK_FAR, public=False)
        show = partial(hidden.set_visibility, "walk_far", public=True, sleep=2)
        for attempt in (partial(write, library, WALK_FAR), show):
            with pytest.raises(InvalidSkill) as caught:
                attempt()
            text = "walk_far cannot be offered as a tool: walk_far cannot be decoded"
            assert str(caught.value) == text

    def test_a_stored_policy_that_is_no_library(self, empty: Library, golden: Golden) -> None:

        def read(text: str, trusted: bool = True) -> None:
            empty.of(msgspec.structs.replace(POLICY, module=text), trusted=trusted)

        strange = MODULE.replace("walk(", "wlk(")
        read(strange)
        tries = {
            "an empty module": partial(read, ""),
            "a function that is no skill": partial(read, MODULE + function()),
            "a function of another name": partial(read, MODULE.replace("def _text", "def text")),
            "no valid Python": partial(read, MODULE.replace("-> str:", "-> str", 1)),
            "an undefined name, not trusted": partial(read, strange, trusted=False),
        }
        golden("library/refused_policies.txt", refusals(tries, InvalidPolicy))
