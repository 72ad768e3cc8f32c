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
from speedrunner.library.signature import Types, is_from, is_literal, is_text, read_signature

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

CLASS_LIMIT = 2_000
"""Maximum characters of one class. Classes carry data between skills; behavior belongs in skills."""

_IN_CLASSES = ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign | ast.Assign | ast.Pass


def problems_of(
    definition: Definition,
    known: Collection[str],
    primitives: Collection[str],
    types: Types,
    *,
    is_tool: bool,
) -> Iterator[Problem]:
    """Yield the problems of a definition in a module.

    Args:
        known: names of the module's definitions.
        primitives: names that the module finds among its globals.
        types: the module's types.
        is_tool: whether the actor is to call it.
    """
    node = definition.tree
    yield from _naming_problems(definition, primitives)
    match node:
        case ast.FunctionDef():
            yield from _function_problems(node, definition.source)
            yield from read_signature(node.args, types, definition.source.split("\n"), is_tool=is_tool)[1]
        case ast.ClassDef():
            yield from _class_problems(node)
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            if definition.name and not is_literal(value):
                yield Problem(1, f"the constant {definition.name} must be a literal value")
    if isinstance(node, ast.Assign) and not definition.name:
        yield Problem(1, "assign each constant in a separate statement, to one name")
    elif not definition.name:
        yield Problem(1, "only imports, constants, classes and functions are allowed at the top level")
    yield from _code_problems(node, definition)
    yield from _scope_problems(definition, known, primitives)


def _naming_problems(definition: Definition, primitives: Collection[str]) -> Iterator[Problem]:
    name, kind, size = definition.name, definition.kind, len(definition.source)
    what, limit = (f"the class {name}", CLASS_LIMIT) if kind == "class" else (name, SOURCE_LIMIT)
    if size > limit:
        yield Problem(1, f"{what} has {size} characters; {limit} are allowed")
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


def _class_problems(node: ast.ClassDef) -> Iterator[Problem]:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not is_from("dataclasses", "dataclass", called):
            yield Problem(decorator.lineno, "dataclass is the only decorator that a class can have")
    for keyword in node.keywords:
        if keyword.arg != "total" or not isinstance(keyword.value, ast.Constant):
            yield Problem(keyword.lineno, "the only keyword that a class can have is the total of TypedDict")
    for statement in node.body:
        is_doc = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_doc and not isinstance(statement, _IN_CLASSES):
            yield Problem(statement.lineno, "a class can contain only fields and methods")


def _code_problems(whole: ast.stmt, definition: Definition) -> Iterator[Problem]:
    for node in ast.walk(whole):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from (Problem(node.lineno, why) for why in _import_problems(node))
            case ast.Global():
                yield Problem(node.lineno, "global is not allowed; pass values as arguments and return them")
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                yield Problem(node.lineno, "async code is not allowed in a skill; use plain def")
            case ast.Name(id=name, ctx=ast.Del()) if name not in definition.names.binds:
                why = f"{definition.name} assigns no such variable"
                yield Problem(node.lineno, f"{name} cannot be deleted: {why}")


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
                elif name.startswith("_") or inspect.ismodule(there[name]):
                    yield f"{name} is not a public name of {module}"


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
