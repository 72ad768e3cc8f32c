"""The source text of skills, understood without running it: as a module, as one edit, as a preamble.

Skills are written by a model, so nothing here executes them.
"""

from __future__ import annotations
import __future__

import ast
import functools
import re
import warnings
from collections.abc import Mapping

from speedrunner.library.rules import DEPTH_LIMIT, MODULE_LIMIT, SOURCE_LIMIT
from speedrunner.library.skill_reader import classes_of, read_module
from speedrunner.library.skill_source import Definition, InvalidSkill, ModuleSource, SkillSource
from speedrunner.library.source_text import longest_statement, unindented


def parse_module(source: str, preamble: str = "") -> ModuleSource:
    """Read a module of skills: imports, constants, small classes and typed, documented functions.

    Args:
        source: the text.
        preamble: definitions that it is added to, whose classes its annotations may name.

    Raises:
        InvalidSkill: it is no Python, or too long.
    """
    if len(source) > MODULE_LIMIT:
        raise InvalidSkill(f"the source has {len(source)} characters; {MODULE_LIMIT} are allowed")
    return read_module(source, _parsed(source), _classes(preamble))


@functools.lru_cache(maxsize=4096)
def parse_edit(source: str, preamble: str = "") -> ModuleSource:
    """Read the text of one edit: a single function, with the definitions before it.

    Args:
        source: the text; indented as a whole or not.
        preamble: as for `parse_module`.

    Raises:
        InvalidSkill: as `parse_module`; or there is no function, more than one, or something after it.
    """
    if len(source) > SOURCE_LIMIT:
        raise InvalidSkill(f"the source has {len(source)} characters; {SOURCE_LIMIT} are allowed")
    source = unindented(source)
    body = _parsed(source).body
    functions = [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    if len(functions) != 1:
        names = ", ".join(each.name for each in functions) or "none"
        raise InvalidSkill(f"the source must hold exactly one function at its top level, not {names}")
    if functions[0] is not body[-1]:
        line = body[body.index(functions[0]) + 1].lineno
        raise InvalidSkill(f"line {line}: nothing may follow the function {functions[0].name}")
    return parse_module(source, preamble)


def parse_skill(source: str, preamble: str = "") -> SkillSource:
    """Read a single function; see `parse_edit`. Raises `InvalidSkill` with every problem."""
    module = parse_edit(source, preamble)
    module.check()
    return module.functions[0]


@functools.lru_cache(maxsize=512)
def parse_preamble(preamble: str) -> Mapping[str, Definition]:
    """Read imports, constants and classes, by name in their order.

    Raises:
        InvalidSkill: something is wrong with one, or there is anything else.
    """
    module = parse_module(preamble)
    module.check()
    if module.functions:
        raise InvalidSkill("there may be imports, constants and classes only")
    return module.definitions


def function_name(source: str) -> str:
    """Return the name of the function that an edit's text is about, as far as it can be told; else nothing.

    Args:
        source: the text, a refused one too.
    """
    source = unindented(source)
    try:
        body = _parsed(source).body
    except InvalidSkill:
        found = re.search(r"^(?:async\s+)?def\s+(\w+)", source, re.MULTILINE)
        return found[1] if found else ""
    names = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return names[0] if names else ""


@functools.lru_cache(maxsize=512)
def _classes(preamble: str) -> Mapping[str, ast.ClassDef]:
    return classes_of(_parsed(preamble))


def _parsed(source: str) -> ast.Module:
    """Raises `InvalidSkill` where the text is no Python, or too much of it for those who read it later."""
    try:
        with warnings.catch_warnings(action="ignore"):
            # Finds what the parser alone does not. The library's module has this flag, too.
            flags = __future__.annotations.compiler_flag
            compile(source, "<skill>", "exec", flags, dont_inherit=True)
            tree = ast.parse(source)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        raise InvalidSkill(f"{place}{error.msg}") from None
    except ValueError as error:  # lone surrogates, null bytes
        raise InvalidSkill(f"the source is no Python: {error}") from None
    except (RecursionError, MemoryError):
        raise _too_deep(longest_statement(source)) from None
    _check_depth(tree)
    return tree


def _check_depth(tree: ast.Module) -> None:
    """Raise `InvalidSkill` where code is nested too deeply."""
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while waiting:
        node, line, depth = waiting.pop()
        line = getattr(node, "lineno", line)
        if depth > DEPTH_LIMIT:
            raise _too_deep(line)
        waiting.extend((each, line, depth + 1) for each in ast.iter_child_nodes(node))


def _too_deep(line: int) -> InvalidSkill:
    return InvalidSkill(f"line {line}: the code is nested too deeply; {DEPTH_LIMIT} levels are allowed")
