"""Classes that pass every rule and still cannot be defined."""

from __future__ import annotations

import re
from functools import partial

import pytest

from speedrunner.config.schema import SandboxConfig
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.workers.sandbox import code_session
from speedrunner.workers.sandbox.code_session import load_failure
from tests.toy_env import Corridor

pytestmark = pytest.mark.process

SKILL = 'def skill() -> str:\n    """Do it."""\n    return str(P)\n'
DATACLASS = "from dataclasses import dataclass\n\n@dataclass\nclass P:\n    x: int = 0\n"


def library(definitions: str, sandbox: SandboxConfig = SandboxConfig()) -> Library:  # noqa: B008 - immutable
    empty = Library(Corridor().primitives, load=partial(load_failure, sandbox))
    return empty.write(definitions + SKILL, sleep=1)


@pytest.mark.parametrize(
    ("definitions", "error"),
    [
        (DATACLASS + "    y: int\n", "TypeError: non-default argument"),
        (DATACLASS + "    y: list = []\n", "ValueError: mutable default"),
        ("class P:\n    x = 1\n    y = 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("class P:\n    def x(self, a={}[1]): pass\n", "KeyError: 1"),
        ("class P:\n    x = walk()\n", "NameError: name 'walk' is not defined"),
        ("class P:\n    x = [walk() for _ in 'a']\n", "NameError: name 'walk' is not defined"),
        ("class P(bool):\n    pass\n", "TypeError: type 'bool' is not an acceptable base type"),
        ("class P(Q): pass\nclass Q(P): pass\n", "NameError: name 'Q' is not defined"),
        (
            DATACLASS.replace("dataclass\n", "dataclass(nonsense=1)\n").replace("(nonsense=1)", "", 1),
            "TypeE",
        ),
        ("class P(int, str):\n    pass\n", "TypeError: multiple bases"),
        ("from enum import Enum\nclass P(Enum):\n    A = 1\n    A = 2\n", "TypeError: "),
        ("LIMIT = 0\nclass Q:\n    x = lambda: 1 / LIMIT\nclass P:\n    y = Q.x()\n", "ZeroDivisionError"),
    ],
)
async def test_the_error_is_named(definitions: str, error: str) -> None:
    with pytest.raises(InvalidSkill, match=f"^the library cannot be loaded: {re.escape(error)}"):
        await library(definitions).check_loading()


@pytest.mark.parametrize("code", ["enum.sys.modules['os']._exit(3)", "random._os._exit(3)"])
async def test_one_that_ends_its_process(code: str) -> None:
    termination = f"import enum\nimport random\nclass P:\n    x = {code}\n"
    with pytest.raises(InvalidSkill, match=r"^the library cannot be loaded: .* exit status 3$"):
        await library(termination).check_loading()


async def test_one_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_session, "LOAD_WALL_S", 0.3)
    endless = "class P:\n    x = sum(iter(int, 1))\n"
    with pytest.raises(
        InvalidSkill, match=r"^the library cannot be loaded: stopped at the time limit of 0.3 s"
    ):
        await library(endless).check_loading()


@pytest.mark.parametrize(
    "definitions",
    [
        DATACLASS + "    y: int = 1\n",
        "from typing import TypedDict\nclass P(TypedDict):\n    x: Unknown\n",
        "class P:\n    x = print('ZeroDivisionError: no')\n    y = 1 is 1\n",
        "class P:\n    x = print('hello')\n    y = lambda: walk()\n",
        "class P(Q):\n    y = LIMIT\nclass Q: pass\nLIMIT = 3\n",
        "class Q:\n    def p(self): return P()\nclass P(Q): pass\n",
    ],
)
async def test_what_can_be_defined_is_accepted(definitions: str) -> None:
    await library(definitions).check_loading()


async def test_without_classes_nothing_is_run() -> None:
    await library("import re as P\n", SandboxConfig(memory_mb=0)).check_loading()
