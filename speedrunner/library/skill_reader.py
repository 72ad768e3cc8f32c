"""Reads a module of skills statement by statement, and reports what none may hold."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping

from speedrunner.library.rules import ALLOWED_MODULES, CLASS_LIMIT, NAME_LIMIT, SOURCE_LIMIT
from speedrunner.library.skill_names import Scopes, bindings
from speedrunner.library.skill_signature import read_signature
from speedrunner.library.skill_source import Definition, ModuleSource, Problem, SkillSource
from speedrunner.library.skill_types import Types, is_from, is_literal, is_text
from speedrunner.library.source_text import SourceText


def read_module(source: str, tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> ModuleSource:
    """Return what a module holds, with the problems of its text.

    Args:
        tree: of `source`.
        classes: further ones that its annotations may name.
    """
    return _Reader(source, Types({**classes, **classes_of(tree)})).module(tree)


def classes_of(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return a module's classes by name."""
    return {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}


class _Reader:
    """Reads one text and collects its problems."""

    def __init__(self, source: str, types: Types) -> None:
        self._text = SourceText(source)
        self._types = types
        self._problems: list[Problem] = []

    def module(self, tree: ast.Module) -> ModuleSource:
        definitions: dict[str, Definition] = {}
        functions: list[SkillSource] = []
        names: set[str] = set()
        for statement in tree.body:
            match statement:
                case ast.AsyncFunctionDef():
                    self._problem(statement, "an async function cannot be a skill; use plain def")
                case ast.FunctionDef(name=name):
                    if name in names or name in definitions:
                        self._problem(statement, f"{name} is defined twice; choose another name")
                    names.add(name)
                    functions.append(self._function(statement))
                case ast.ImportFrom(module="__future__"):
                    pass  # the library's module has what a skill may want of it
                case ast.Expr(value=ast.Constant(value=str())):
                    pass  # a docstring, or a comment in the shape of a string
                case _:
                    found = self._definitions(statement)
                    for name in found.keys() & names:
                        self._problem(statement, f"{name} is defined twice; choose another name")
                    for name in found:
                        if name.startswith("__"):
                            self._problem(statement, f"{name} is a name of Python's own; choose another name")
                    definitions |= found
        return ModuleSource(definitions, tuple(functions), tuple(self._problems))

    def _definitions(self, statement: ast.stmt) -> dict[str, Definition]:
        line = statement.lineno
        match statement:
            case ast.Import() | ast.ImportFrom():
                self._check_import(statement)
                return {
                    name: Definition(name, "import", text, line)
                    for name, text in _imported(statement).items()
                }
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if not is_literal(statement.value):
                    self._problem(statement, f"the constant {name} must be a literal value")
                text = self._text.of(statement)
                self._check_size(statement, name, text, SOURCE_LIMIT)
                return {name: Definition(name, "constant", text, line)}
            case ast.ClassDef(name=name):
                text = self._text.of(statement)
                self._check_size(statement, f"the class {name}", text, CLASS_LIMIT)
                self._check_class(statement)
                scopes = Scopes(statement, text)
                names = scopes.reads(), scopes.needs(), scopes.binds()
                return {name: Definition(name, "class", text, line, *names)}
        self._problem(statement, "only imports, constants, classes and functions may stand at the top level")
        return {}

    def _function(self, function: ast.FunctionDef) -> SkillSource:
        self._check_name(function)
        text = self._text.of(function)
        self._check_size(function, function.name, text, SOURCE_LIMIT)
        for decorator in function.decorator_list:
            self._problem(decorator, "a skill cannot be decorated")
        self._check_code(function)
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(function)):
            self._problem(function, f"{function.name} yields; a skill must return its result")
        doc = (ast.get_docstring(function) or "").strip()
        if not doc:
            self._problem(function, f"{function.name} needs a docstring that says what it does and returns")
        if not is_text(doc):
            self._problem(function, f"the docstring of {function.name} is no valid Unicode text")
        scopes = Scopes(function, text)
        return SkillSource(
            name=function.name,
            source=text,
            line=function.lineno,
            doc=doc,
            signature=read_signature(function, self._types, self._text, self._problem),
            reads=scopes.reads(),
            binds=scopes.binds(),
        )

    def _problem(self, where: ast.stmt | ast.expr | ast.arg | ast.keyword, text: str) -> None:
        self._problems.append(Problem(where.lineno, text))

    def _check_name(self, function: ast.FunctionDef) -> None:
        name = function.name
        if not name.isascii() or len(name) > NAME_LIMIT or name.startswith("__"):
            self._problem(
                function,
                f"{name!r} cannot name a skill: at most {NAME_LIMIT} ASCII characters, not beginning with __",
            )

    def _check_size(self, where: ast.stmt, what: str, text: str, limit: int) -> None:
        if len(text) > limit:
            self._problem(where, f"{what} has {len(text)} characters; {limit} are allowed")

    def _check_code(self, block: ast.FunctionDef | ast.ClassDef) -> None:
        bound = {name for name, _ in bindings(block)}
        for node in ast.walk(block):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._check_import(node)
                case ast.Global():
                    self._problem(node, "global is not allowed; pass values as arguments and return them")
                case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                    self._problem(node, "async code is not allowed in a skill")
                case ast.Name(id=name, ctx=ast.Del()) if name not in bound:
                    self._problem(node, f"{name} cannot be deleted: {block.name} assigns no such variable")

    def _check_class(self, node: ast.ClassDef) -> None:
        self._check_code(node)
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not is_from("dataclasses", "dataclass", called):
                self._problem(decorator, "dataclass is the only decorator that a class may have")
        for keyword in node.keywords:
            if keyword.arg != "total" or not isinstance(keyword.value, ast.Constant):
                self._problem(keyword, "a class takes no keyword but TypedDict's total")
        for statement in node.body:
            match statement:
                case ast.FunctionDef() | ast.AnnAssign() | ast.Assign() | ast.Pass():
                    pass
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.AsyncFunctionDef():
                    pass  # told as async code
                case _:
                    self._problem(statement, "only fields and methods may stand in a class")

    def _check_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for module in _modules(statement):
            if module not in ALLOWED_MODULES:
                allowed = ", ".join(ALLOWED_MODULES)
                self._problem(statement, f"cannot import {module}; allowed are {allowed}")
        if isinstance(statement, ast.ImportFrom) and statement.module in ALLOWED_MODULES:
            there = importlib.import_module(statement.module)
            for alias in statement.names:
                if alias.name == "*":
                    self._problem(statement, "import names one by one instead of *")
                elif not hasattr(there, alias.name):
                    self._problem(statement, f"{statement.module} has no {alias.name}")
                elif alias.name.startswith("_") or inspect.ismodule(getattr(there, alias.name)):
                    self._problem(statement, f"{alias.name} is no public name of {statement.module}")


def _modules(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [each.name for each in statement.names]
    return ["." * statement.level + (statement.module or "")]


def _imported(statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return one import statement for each name that is bound."""
    found = {}
    for alias in statement.names:
        single: ast.stmt
        if isinstance(statement, ast.Import):
            single = ast.Import([alias])
        else:
            single = ast.ImportFrom(statement.module, [alias], statement.level)
        found[alias.asname or alias.name.partition(".")[0]] = ast.unparse(single)
    return found


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Walk a function's body without the functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
