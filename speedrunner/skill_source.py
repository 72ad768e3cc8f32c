"""One skill's source text, understood without running it.

Skills are written by a model, so nothing here executes them: the text is parsed, its signature is rebuilt
from the syntax tree, and `symtable` says which names it takes from the module around it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import operator
import symtable
import textwrap
import types
import typing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from envs.signatures import converted

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
"""Characters that one skill's source may have."""

NAME_LIMIT = 64
"""Characters that a skill's name may have; model tool formats allow no more."""

_SCALARS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_TYPES = "str, int, float, bool, Literal[...] and list[...]"


class InvalidSkill(Exception):
    """An edit of the library is refused. The text tells its author why, a line per problem."""


@dataclass(frozen=True, slots=True)
class SkillSource:
    """What one skill's text says.

    Attributes:
        name: the function's name.
        source: the function's own text, without what stands before it.
        doc: its docstring, unindented.
        signature: its parameters with real types and defaults; without a return type.
        preamble: the imports and constants before it: name -> statement.
        reads: names that its code takes from the module, each with its first line.
        mentions: all names in it, those of annotations and local variables included.
    """

    name: str
    source: str
    doc: str
    signature: inspect.Signature
    preamble: Mapping[str, str]
    reads: Mapping[str, int]
    mentions: frozenset[str]


@functools.lru_cache(maxsize=4096)
def parse_skill(source: str) -> SkillSource:
    """Read one function, with the imports and constants before it.

    Raises:
        InvalidSkill: with every problem found in the text itself; whether its names exist is left to the
            library.
    """
    if len(source) > SOURCE_LIMIT:
        raise InvalidSkill(f"the source has {len(source)} characters; {SOURCE_LIMIT} are allowed")
    source = textwrap.dedent(source)
    try:
        return _Reader(source).read(_parsed(source))
    except RecursionError:
        raise InvalidSkill("the source is nested too deeply") from None


def parse_preamble(preamble: str) -> dict[str, str]:
    """Split a module's imports and constants: name -> statement, in their order.

    Raises:
        InvalidSkill: it holds anything else.
    """
    reader = _Reader(preamble)
    statements = reader.preamble(_parsed(preamble).body)
    reader.finish()
    return statements


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

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[tuple[int, str]] = []

    def read(self, tree: ast.Module) -> SkillSource:
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        if len(functions) != 1:
            names = ", ".join(each.name for each in functions) or "none"
            raise InvalidSkill(f"the source must hold exactly one function at its top level, not {names}")
        function = functions[0]
        if isinstance(function, ast.AsyncFunctionDef):
            raise InvalidSkill(f"line {function.lineno}: an async function cannot be a skill; use plain def")
        if function is not tree.body[-1]:
            after = tree.body[tree.body.index(function) + 1]
            self._problem(after, f"nothing may follow the function {function.name}")
        self._check_name(function)
        self._check_body(function)
        doc = (ast.get_docstring(function) or "").strip()
        if not doc:
            self._problem(function, f"{function.name} needs a docstring that says what it does and returns")
        if not _is_text(doc):
            self._problem(function, f"the docstring of {function.name} is no valid Unicode text")
        signature = self._signature(function)
        preamble = self.preamble(tree.body[: tree.body.index(function)])
        self.finish()
        return SkillSource(
            name=function.name,
            source=ast.get_source_segment(self._source, function) or "",
            doc=doc,
            signature=signature,
            preamble=preamble,
            reads=_reads(function),
            mentions=frozenset(each.id for each in ast.walk(function) if isinstance(each, ast.Name)),
        )

    def preamble(self, statements: list[ast.stmt]) -> dict[str, str]:
        found: dict[str, str] = {}
        for statement in statements:
            match statement:
                case ast.ImportFrom(module="__future__"):
                    pass  # the library's module has what a skill may want of it
                case ast.Import() | ast.ImportFrom():
                    self._check_import(statement)
                    found |= _imported(statement)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    if not _is_literal(statement.value):
                        self._problem(statement, f"the constant {name} must be a literal value")
                    found[name] = ast.get_source_segment(self._source, statement) or ""
                case ast.Expr(value=ast.Constant(value=str())):
                    pass  # a comment in the shape of a string
                case _:
                    self._problem(statement, "only imports and constants may stand before the function")
        return found

    def finish(self) -> None:
        """Raise what was found."""
        if self._problems:
            raise InvalidSkill("\n".join(f"line {line}: {text}" for line, text in sorted(self._problems)))

    def _problem(self, where: ast.stmt | ast.expr | ast.arg, text: str) -> None:
        self._problems.append((where.lineno, text))

    def _check_name(self, function: ast.FunctionDef) -> None:
        name = function.name
        if not name.isascii() or len(name) > NAME_LIMIT or name.startswith("__"):
            self._problem(
                function,
                f"{name!r} cannot name a skill: at most {NAME_LIMIT} ASCII characters, not beginning with __",
            )

    def _check_body(self, function: ast.FunctionDef) -> None:
        for decorator in function.decorator_list:
            self._problem(decorator, "a skill cannot be decorated")
        for node in ast.walk(function):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._check_import(node)
                case ast.Global():
                    self._problem(node, "global is not allowed; pass values as arguments and return them")
                case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                    self._problem(node, "async code is not allowed in a skill")
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(function)):
            self._problem(function, f"{function.name} yields; a skill must return its result")

    def _check_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for module in _modules(statement):
            if module not in ALLOWED_MODULES:
                allowed = ", ".join(ALLOWED_MODULES)
                self._problem(statement, f"cannot import {module}; allowed are {allowed}")
        if isinstance(statement, ast.ImportFrom) and any(each.name == "*" for each in statement.names):
            self._problem(statement, "import names one by one instead of *")

    def _signature(self, function: ast.FunctionDef) -> inspect.Signature:
        given = function.args
        for variadic in (given.vararg, given.kwarg):
            if variadic is not None:
                self._problem(variadic, f"variable arguments are not allowed; name each ({variadic.arg})")
        for positional in given.posonlyargs:
            self._problem(positional, f"{positional.arg} must be passable by name; remove the /")
        ordinary = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(ordinary) - len(given.defaults)), *given.defaults]
        parameters = [
            self._parameter(each, default, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for each, default in zip(ordinary, defaults, strict=True)
        ] + [
            self._parameter(each, default, inspect.Parameter.KEYWORD_ONLY)
            for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ]
        return inspect.Signature(parameters)

    def _parameter(self, given: ast.arg, default: ast.expr | None, kind: Any) -> inspect.Parameter:
        annotation: Any = inspect.Parameter.empty
        value: Any = inspect.Parameter.empty
        if given.annotation is None:
            self._problem(given, f"the parameter {given.arg} needs a type: {_TYPES} are allowed")
        else:
            try:
                annotation = _type(given.annotation)
            except _UnknownType:
                text = ast.unparse(given.annotation)
                self._problem(given, f"the parameter {given.arg} cannot be {text}: {_TYPES} are allowed")
        if default is not None:
            value = None
            if not _is_literal(default):
                self._problem(default, f"the default of {given.arg} must be a literal value")
            elif not _fits(value := ast.literal_eval(default), annotation):
                text = ast.unparse(default)
                self._problem(default, f"the default of {given.arg} cannot be {text}: use its type or None")
        return inspect.Parameter(given.arg, kind, default=value, annotation=annotation)


class _UnknownType(Exception):
    pass


def _type(annotation: ast.expr) -> Any:
    match annotation:
        case ast.Name(id=name) if name in _SCALARS:
            return _SCALARS[name]
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return types.GenericAlias(list, (_type(item),))
        case ast.Subscript(value=kind, slice=values) if ast.unparse(kind) in ("Literal", "typing.Literal"):
            options = values.elts if isinstance(values, ast.Tuple) else [values]
            if options and all(_is_literal(each) for each in options):
                choices = tuple(ast.literal_eval(each) for each in options)
                if all(isinstance(each, str | int) for each in choices):
                    return operator.getitem(typing.cast(Any, typing.Literal), choices)
    raise _UnknownType


def _is_literal(node: ast.expr | None) -> bool:
    if node is None:
        return False
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return False
    return all(
        _is_text(each.value)
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def _fits(default: object, annotation: Any) -> bool:
    """Tell whether a default can stand in a tool's JSON schema."""
    try:
        if default is None or msgspec.json.decode(msgspec.json.encode(default)) != default:
            return default is None
        converted(default, annotation)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return False
    return True


def _is_text(value: str) -> bool:
    """Tell whether the text can be written out: lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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


class _WithoutTypes(ast.NodeTransformer):
    """Drops annotations: they are never evaluated, so their names need not exist."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _reads(function: ast.FunctionDef) -> dict[str, int]:
    bare = _WithoutTypes().visit(copy.deepcopy(function))
    names = set(_global_names(symtable.symtable(ast.unparse(bare), "<skill>", "exec")))
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in names:
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    return lines


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    for scope in table.get_children():
        for symbol in scope.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                yield symbol.get_name()
        yield from _global_names(scope)
