"""Check a definition; problems refer to the lines of its own text."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Collection, Iterator
from types import CodeType

from speedrunner.library.definition import Definition, compile_source
from speedrunner.library.rules import (
    ALLOWED_MODULES,
    NAME_LIMIT,
    SHOWN_PROBLEMS,
    SOURCE_LIMIT,
    Problem,
    suggestion,
)
from speedrunner.library.signature import is_literal, is_text, read_signature

FORBIDDEN_BUILTINS = frozenset(
    {
        *("__import__", "breakpoint", "compile", "eval", "exec", "exit", "globals", "help", "input"),
        *("locals", "open", "quit", "vars"),
    }
)
"""Builtins that a skill does not need and that could bypass the library's checks."""

BUILTINS = frozenset(vars(builtins)) - FORBIDDEN_BUILTINS

RESERVED = frozenset({"submit_answer"})
"""Tools of the actor that are neither primitives nor skills."""


def problems_of(
    definition: Definition,
    known: Collection[str],
    primitives: Collection[str],
    *,
    is_tool: bool,
) -> Iterator[Problem]:
    """Yield the problems of a definition in a module.

    Args:
        known: names of the module's definitions.
        primitives: names that the module finds among its globals.
        is_tool: whether the actor is to call it.
    """
    node = definition.tree
    yield from _naming_problems(definition, primitives)
    match node:
        case ast.FunctionDef():
            yield from _function_problems(node, definition.source)
            yield from read_signature(node.args, definition.source.split("\n"), is_tool=is_tool)[1]
        case ast.ClassDef():
            yield Problem(1, f"define the class {node.name} inside the function that uses it")
        case ast.Assign() if not definition.name:
            yield Problem(1, "assign each constant in a separate statement, to one name")
        case _ if not definition.name:
            yield Problem(1, "only imports, constants and functions are allowed at the top level")
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if not is_literal(value):
            yield Problem(1, f"the constant {definition.name} must be a literal value")
    yield from _code_problems(node)
    yield from _scope_problems(definition, known, primitives)


def _naming_problems(definition: Definition, primitives: Collection[str]) -> Iterator[Problem]:
    name, kind, size = definition.name, definition.kind, len(definition.source)
    if size > SOURCE_LIMIT:
        yield Problem(1, f"{name} has {size} characters; {SOURCE_LIMIT} are allowed")
    taken = {
        "a primitive": primitives,
        "a tool of the actor": RESERVED,
        "a Python builtin": BUILTINS | FORBIDDEN_BUILTINS,
    }
    for what, names in taken.items():
        if name in names:
            yield Problem(1, f"{name} is already {what}; choose another name")
    if kind != "function" and name.startswith("__"):
        yield Problem(1, f"{name} is reserved by Python; choose another name")
    if kind == "function" and not (name.isascii() and len(name) <= NAME_LIMIT and name[:2] != "__"):
        allowed = f"at most {NAME_LIMIT} ASCII characters, not beginning with __"
        yield Problem(1, f"{name!r} cannot name a skill: {allowed}")


def _function_problems(node: ast.FunctionDef, source: str) -> Iterator[Problem]:
    for decorator in node.decorator_list:
        yield Problem(decorator.lineno, "a skill cannot be decorated")
    for code in compile_source(source).co_consts:
        if isinstance(code, CodeType) and code.co_flags & inspect.CO_GENERATOR:
            yield Problem(node.lineno, f"{node.name} yields; a skill must return its result")
    doc = (ast.get_docstring(node) or "").strip()
    if not doc:
        yield Problem(node.lineno, f"{node.name} needs a docstring that says what it does and returns")
    if not is_text(doc):
        yield Problem(node.lineno, f"the docstring of {node.name} is not valid Unicode text")


def _code_problems(whole: ast.stmt) -> Iterator[Problem]:
    for node in ast.walk(whole):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from (Problem(node.lineno, why) for why in _import_problems(node))
            case ast.Global():
                yield Problem(node.lineno, "global is not allowed; pass values as arguments and return them")
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                yield Problem(node.lineno, "async code is not allowed in a skill; use plain def")


def _import_problems(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    modules = names if isinstance(node, ast.Import) else ["." * node.level + (node.module or "")]
    for module in modules:
        if module not in ALLOWED_MODULES:
            yield f"cannot import {module}; allowed are {', '.join(ALLOWED_MODULES)}"
        elif isinstance(node, ast.ImportFrom):
            there = vars(importlib.import_module(module))
            for name in names:
                if name == "*":
                    yield "import names one by one instead of *"
                elif name not in there:
                    yield f"{module} has no {name}"


def _scope_problems(
    definition: Definition, known: Collection[str], primitives: Collection[str]
) -> Iterator[Problem]:
    reads, binds, _ = definition.names
    for name in binds.keys() & primitives:
        yield Problem(binds[name], f"{name} is already a primitive; choose another name")
    unknown: dict[str, int] = {}
    for name, line, _ in reads:
        if not any(name in names for names in (known, primitives, BUILTINS, binds)):
            unknown[name] = min(line, unknown.get(name, line))
    for number, (name, line) in enumerate(unknown.items()):
        if name in FORBIDDEN_BUILTINS:
            yield Problem(line, f"{name} is not available to skills")
        elif "*" not in known:  # the import itself is refused
            near = suggestion(name, {*filter(None, known), *primitives}) if number < SHOWN_PROBLEMS else ""
            yield Problem(line, f"{name} is not defined{near}")
