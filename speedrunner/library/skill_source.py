"""The source text of skills, understood without running it.

Skills are written by a model, so nothing here executes them.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from speedrunner.library.skill_names import needs, reads
from speedrunner.library.skill_signature import read_signature
from speedrunner.library.skill_types import Types, is_literal, is_text

ALLOWED_MODULES = (
    "collections",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
)
"""Modules that skills may import."""

FORBIDDEN_BUILTINS = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "exit",
        "globals",
        "help",
        "input",
        "locals",
        "open",
        "quit",
        "vars",
    }
)
"""Builtins that a skill has no use for: they reach around the checks of this module."""

BUILTINS = frozenset(vars(builtins)) - FORBIDDEN_BUILTINS

SOURCE_LIMIT = 20_000
"""Characters that the source of one edit may have."""

MODULE_LIMIT = 1_000_000
"""Characters that a whole library may have."""

CLASS_LIMIT = 2_000
"""Characters of one class: classes hold data that skills pass to each other, behaviour belongs in skills."""

NAME_LIMIT = 64
"""Characters that a skill's name may have; model tool formats allow no more."""


class InvalidSkill(Exception):
    """An edit of the library is refused. The text tells its author why, a line per problem."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An import, a constant or a class, which skills share.

    Attributes:
        name: what it binds.
        source: its text; an import that binds several names is split.
        reads: names that it takes from the module, each with its first line.
        needs: those of `reads` that must exist when the module is loaded.
    """

    name: str
    kind: Literal["import", "constant", "class"]
    source: str
    line: int
    reads: Mapping[str, int] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SkillSource:
    """What one function's text says.

    Attributes:
        name: the function's name.
        source: the function's own text, without what stands before it.
        line: where it begins in the text that was read.
        doc: its docstring, unindented.
        signature: its parameters with real types and defaults; without a return type.
        reads: names that its code takes from the module, each with its first line.
    """

    name: str
    source: str
    line: int
    doc: str
    signature: inspect.Signature
    reads: Mapping[str, int]


class Problem(NamedTuple):
    """What is wrong with a text, and in which line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """What a module's text says.

    Attributes:
        definitions: by name, in their order.
        functions: in their order.
        problems: what is wrong with the text itself; whether its names exist is left to the library.
    """

    definitions: Mapping[str, Definition]
    functions: tuple[SkillSource, ...]
    problems: tuple[Problem, ...] = ()

    def check(self, *more: Problem) -> None:
        """Raise `InvalidSkill` with all problems, and those of others, in the order of lines."""
        if problems := sorted({*self.problems, *more}):
            raise InvalidSkill("\n".join(f"line {line}: {text}" for line, text in problems))


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
    try:
        classes = _classes(_parsed(preamble)) if preamble else {}
        reader = _Reader(source, classes)
        return reader.module(_parsed(source))
    except RecursionError:
        raise InvalidSkill("the source is nested too deeply") from None


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
    source = textwrap.dedent(source)
    try:
        body = _parsed(source).body
    except RecursionError:
        raise InvalidSkill("the source is nested too deeply") from None
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


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<skill>", "exec", dont_inherit=True)  # finds what the parser alone does not
            return ast.parse(source)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        raise InvalidSkill(f"{place}{error.msg}") from None
    except (ValueError, MemoryError) as error:  # lone surrogates; too many levels
        raise InvalidSkill(f"the source is no Python: {error or type(error).__name__}") from None


class _Reader:
    """Reads one text and collects its problems."""

    def __init__(self, source: str, classes: Mapping[str, ast.ClassDef]) -> None:
        self._source = source
        self._classes = classes
        self._problems: list[Problem] = []

    def module(self, tree: ast.Module) -> ModuleSource:
        types = Types({**self._classes, **_classes(tree)})
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
                    functions.append(self._function(statement, types))
                case ast.ImportFrom(module="__future__"):
                    pass  # the library's module has what a skill may want of it
                case ast.Expr(value=ast.Constant(value=str())):
                    pass  # a docstring, or a comment in the shape of a string
                case _:
                    found = self._definitions(statement)
                    for name in found.keys() & names:
                        self._problem(statement, f"{name} is defined twice; choose another name")
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
                text = self._text(statement)
                return {name: Definition(name, "constant", text, line)}
            case ast.ClassDef(name=name):
                self._check_class(statement)
                text = self._text(statement)
                return {name: Definition(name, "class", text, line, reads(statement), needs(statement))}
        self._problem(statement, "only imports, constants, classes and functions may stand at the top level")
        return {}

    def _function(self, function: ast.FunctionDef, types: Types) -> SkillSource:
        self._check_name(function)
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
        return SkillSource(
            name=function.name,
            source=ast.get_source_segment(self._source, function) or "",
            line=function.lineno,
            doc=doc,
            signature=read_signature(function, types, self._problem),
            reads=reads(function),
        )

    def _text(self, statement: ast.stmt) -> str:
        """The text of a statement, its decorators included."""
        text = ast.get_source_segment(self._source, statement) or ""
        decorators = getattr(statement, "decorator_list", [])
        lines = [f"@{ast.get_source_segment(self._source, each)}" for each in decorators]
        return "\n".join([*lines, text])

    def _problem(self, where: ast.stmt | ast.expr | ast.arg | ast.keyword, text: str) -> None:
        self._problems.append(Problem(where.lineno, text))

    def _check_name(self, function: ast.FunctionDef) -> None:
        name = function.name
        if not name.isascii() or len(name) > NAME_LIMIT or name.startswith("__"):
            self._problem(
                function,
                f"{name!r} cannot name a skill: at most {NAME_LIMIT} ASCII characters, not beginning with __",
            )

    def _check_code(self, block: ast.FunctionDef | ast.ClassDef) -> None:
        for node in ast.walk(block):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._check_import(node)
                case ast.Global():
                    self._problem(node, "global is not allowed; pass values as arguments and return them")
                case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                    self._problem(node, "async code is not allowed in a skill")

    def _check_class(self, node: ast.ClassDef) -> None:
        size = len(self._text(node))
        if size > CLASS_LIMIT:
            self._problem(node, f"the class {node.name} has {size} characters; {CLASS_LIMIT} are allowed")
        self._check_code(node)
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called) not in ("dataclass", "dataclasses.dataclass"):
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


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}


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
        found[alias.asname or alias.name] = ast.unparse(single)
    return found


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Walk a function's body without the functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
