"""Whether the classes of a library can be defined: what only running them tells, in the sandbox.

Imports are known, constants and defaults are literals, and functions do nothing before they are called. A
class does: its fields' values are computed, and dataclasses and enumerations have rules of their own.
"""

from __future__ import annotations

import ast
import re

from speedrunner.library.skill_set import SkillSet
from speedrunner.library.skill_source import InvalidSkill
from speedrunner.sandbox.code_session import CodeSession
from speedrunner.sandbox.settings import Sandbox

LOAD_WALL_S = 5.0
"""Seconds that a library's module may take to load."""


async def check_loading(library: SkillSet, sandbox: Sandbox) -> None:
    """Load a library's module as an episode would; one without classes cannot fail and is not loaded.

    Raises:
        InvalidSkill: it cannot be loaded; the text names the class.
        SandboxError: no process starts.
    """
    if not any(each.kind == "class" for each in library.shared.values()):
        return
    source = library.module_source()
    async with CodeSession(sandbox) as session:
        loaded = await session.execute(source, LOAD_WALL_S)
    if loaded.error is not None:
        raise InvalidSkill(f"{_failure(source, loaded.text)}: {loaded.error}")


def _failure(source: str, trace: str) -> str:
    """Which class a traceback began in, with its line counted from the class's own first one."""
    lines = [int(line) for line in re.findall(r'File "<execute 1>", line (\d+)', trace)]
    for node in ast.parse(source).body:
        first = min(each.lineno for each in (node, *getattr(node, "decorator_list", [])))
        inside = [line for line in lines if first <= line <= (node.end_lineno or first)]
        if isinstance(node, ast.ClassDef) and inside and inside[0] == lines[0]:
            place = f"in its line {inside[-1] - first + 1}"
            return f"the class {node.name} fails when the library is loaded, {place}"
    return "the library cannot be loaded"
