"""Parse model-written source text into definitions: imports, constants and functions.

No text is executed.
"""

from __future__ import annotations
import __future__

import ast
import copy
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any, Literal, NamedTuple

from pyflakes import checker, messages  # type: ignore[import-untyped]

from speedrunner.library.rules import DEPTH_LIMIT, MODULE_BYTES, SHOWN_CHARS, InvalidSkill

HEADER = "from __future__ import annotations"
"""First line of every library module: annotations are documentation there and are never evaluated."""

_GAP = "\n\n\n"

TOO_DEEP = f"the code is nested too deeply; {DEPTH_LIMIT} levels are allowed"


class Names(NamedTuple):
    """The names in one or more definitions.

    Attributes:
        reads: names read from the module, including its own and builtins, each with its line and its column
            in bytes; also names that a function assigns further below.
        binds: names that functions bind locally, each with its first line. Fields and methods of a local
            class are not included: they hide nothing from its methods.
        mentions: the names in `reads`, and those in annotations, which need not exist.
    """

    reads: list[tuple[str, int, int]]
    binds: dict[str, int]
    mentions: set[str]


class _Walk(checker.Checker):  # type: ignore[misc]
    """Pyflakes' scopes, with no known names at the top level: undefined names belong to the module."""

    # Skip pyflakes' other checks, which can take time quadratic in the code's length. Where NameError is
    # caught, pyflakes would accept any name.
    BINOP = CALL = COMPARE = DICT = IF = IFEXP = JOINEDSTR = LIST = checker.Checker.handleChildren
    RAISE = RETURN = SUBSCRIPT = TRY = TRYSTAR = TUPLE = checker.Checker.handleChildren
    BREAK = CONTINUE = GLOBAL = NONLOCAL = checker.Checker.ignore

    def __init__(self, tree: ast.Module) -> None:
        self.names = Names([], {}, set())
        super().__init__(tree, withDoctest=False)

    def report(self, messageClass: Any, *args: Any, **kwargs: Any) -> None:
        """Record an unknown name."""
        if messageClass is messages.UndefinedName:
            node, name = args
            self.names.reads.append((name, node.lineno, node.col_offset))
            self.names.mentions.add(name)

    def addBinding(self, node: Any, value: Any) -> None:
        """Record a bound name, unless it is a builtin or a definition's own name."""
        scopes = self.scopeStack
        if isinstance(value, checker.NamedExprAssignment):
            scopes = [scope for scope in scopes if not isinstance(scope, checker.ComprehensionScope)]
        if isinstance(scopes[-1], checker.ModuleScope):
            return
        scopes[-1][value.name] = value
        if not isinstance(scopes[-1], checker.ClassScope):
            binds = self.names.binds
            binds[value.name] = min(node.lineno, binds.get(value.name, node.lineno))

    def handleAnnotation(self, annotation: Any, node: Any) -> None:
        """Record the names in an annotation, which is never evaluated."""
        if annotation is not None:
            self.names.mentions.update(name.id for name in ast.walk(annotation) if isinstance(name, ast.Name))


@dataclass(frozen=True)
class Definition:
    """One definition, independent of the others.

    Attributes:
        name: the name that it binds; empty for `other`.
        kind: a `class` is not allowed in a library, and neither is `other`, any other statement.
        source: its text; an import of several names is split.
        line: its first line in the text that it was read from; see `read_module`.
    """

    name: str
    kind: Literal["import", "constant", "class", "function", "other"]
    source: str
    line: int = field(compare=False)

    @property
    def tree(self) -> ast.stmt:
        """Return its syntax tree, which must not be changed."""
        return _parse_definition(self.source).body[0]

    @cached_property
    def head(self) -> ast.stmt:
        """Return its syntax tree to keep; a function's body is cut after the docstring."""
        node = copy.copy(self.tree)
        if isinstance(node, ast.FunctionDef):
            node.body = node.body[:1]
        return node

    @cached_property
    def names(self) -> Names:
        """Return the names in it."""
        tree = _parse_definition(self.source)
        names = _Walk(tree).names
        for node in ast.walk(tree):  # or the head would keep the whole tree in memory
            vars(node).pop("_pyflakes_parent", None)
        return names

    def mentions(self, name: str) -> bool:
        """Return whether its code, annotations included, uses a name of the module."""
        text = self.source
        if text.isascii() and not (name in text and re.search(rf"\b{re.escape(name)}\b", text)):
            return False  # avoids parsing
        return name in self.names.mentions

    def renamed(self, old: str, new: str) -> Definition:
        """Return it with a function or constant of the module, or its own one, renamed.

        Raises `InvalidSkill`: it also uses one of the names locally.
        """
        reads, binds, _ = self.names
        lines = [line.encode() for line in self.source.split("\n")]
        for _, line, column in sorted((read for read in reads if read[0] == old), reverse=True):
            rest = lines[line - 1][column + len(old.encode()) :]  # from right to left within a line
            lines[line - 1] = lines[line - 1][:column] + new.encode() + rest
        source = b"\n".join(lines).decode(errors="replace")
        if self.name == old:
            source = re.sub(rf"\A((?:def\s+)?){old}\b", rf"\g<1>{new}", source)
        (changed,) = read_text(source)
        wanted = [new if name == old else name for name, _, _ in reads]
        taken = {old, new} & binds.keys()
        if taken or changed.name == old or [name for name, _, _ in changed.names.reads] != wanted:
            what = f"{self.name} also uses {min(taken, default=new)} as a local name"
            raise InvalidSkill(f"{what}; change that first, then rename")
        return changed


def check_size(source: str) -> None:
    """Raise `InvalidSkill` if a text is larger than a library may be."""
    if len(source) > MODULE_BYTES or len(source.encode(errors="replace")) > MODULE_BYTES:
        raise InvalidSkill(f"the module has more than {MODULE_BYTES} bytes, the limit")


def tidy_source(source: str) -> str:
    """Return a text with uniform line ends and without common indentation."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    indented = re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*([^\S\n]+)[^\s#]", text)
    return re.sub(f"(?m)^{re.escape(indented[1])}", "", text) if indented else text


def parse_source(source: str) -> ast.Module:
    """Parse a text of a library. Raises `InvalidSkill` if it is not valid Python, or too deep."""
    with _explain_syntax_errors():
        tree = ast.parse(source)
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while waiting:
        node, line, depth = waiting.pop()
        line = getattr(node, "lineno", line)
        if depth > DEPTH_LIMIT:
            raise InvalidSkill(f"line {line}: {TOO_DEEP}")
        depth += 1
        for value in vars(node).values():  # twice as fast as `ast.iter_child_nodes`
            if isinstance(value, ast.AST):
                waiting.append((value, line, depth))
            elif isinstance(value, list):
                waiting += [(child, line, depth) for child in value if isinstance(child, ast.AST)]
    return tree


def compile_source(source: str) -> CodeType:
    """Compile a text, which finds errors that the parser misses. Raises `InvalidSkill`."""
    with _explain_syntax_errors():
        flags = __future__.annotations.compiler_flag  # the library's module has it, too
        code: CodeType = compile(source, "<skill>", "exec", flags, dont_inherit=True)
    return code


_parse_definition = lru_cache(maxsize=64)(parse_source)
"""Parses a definition, which is read several times during an edit."""


def read_text(source: str) -> list[Definition]:
    """Parse the definitions in a text. Raises `InvalidSkill` if it is not valid Python, or too large."""
    check_size(source)
    source = tidy_source(source)
    if source.lstrip().startswith("```"):
        raise InvalidSkill("send the source alone, without code fences (```)")
    lines, body = source.split("\n"), parse_source(source).body
    return [definition for statement in body for definition in _definitions(statement, lines)]


@lru_cache(maxsize=64)
def read_module(source: str) -> tuple[Definition, ...]:
    """Return the definitions of a policy's module, with lines counted from the start of each function. Raises
    the same as `read_text`."""
    blocks = re.split(f"{_GAP}(?=def )", source)
    try:  # versions of a policy share most functions
        return tuple(definition for block in blocks for definition in _read_block(block))
    except InvalidSkill:  # a text in a function has such a gap, or the module is invalid
        return tuple(read_text(source))


_read_block = lru_cache(maxsize=4096)(read_text)


def function_names(source: str) -> list[str]:
    """Return the names of the functions in a text if it can be parsed; it may be invalid otherwise."""
    try:
        names = [definition.name for definition in read_text(source) if definition.kind == "function"]
    except InvalidSkill:
        names = re.findall(r"(?m)^(?:async\s+)?def\s+(\w+)", tidy_source(source))
    return list(dict.fromkeys(names))


def module_text(definitions: Iterable[Definition]) -> str:
    """Return a module's text, with two empty lines before each function; empty without functions."""
    lines: dict[str, list[str]] = {"import": [], "constant": []}
    blocks: list[str] = []
    for definition in definitions:
        lines.get(definition.kind, blocks).append(definition.source)
    head = "\n\n".join([HEADER, *("\n".join(group) for group in lines.values() if group)])
    return _GAP.join([head, *blocks]) + "\n" if blocks else ""


def find_dependencies(name: str, named: Mapping[str, Definition]) -> set[str]:
    """Return a definition and all those of `named` that it uses, directly or indirectly."""
    needed, waiting = set[str](), [name]
    while waiting:
        needed.add(one := waiting.pop())
        waiting += [other for other in named if other not in needed and named[one].mentions(other)]
    return needed


def arrange_definitions(definitions: Sequence[Definition]) -> tuple[Definition, ...]:
    """Return the definitions that functions use, in order: imports, constants, functions."""
    functions = [definition for definition in definitions if definition.kind == "function"]
    used = [one for one in definitions if any(function.mentions(one.name) for function in functions)]
    imports = sorted((one for one in used if one.kind == "import"), key=lambda one: one.source)
    return (*imports, *(one for one in used if one.kind == "constant"), *functions)


def _definitions(statement: ast.stmt, lines: list[str]) -> Iterator[Definition]:
    """Yield the definitions of a statement at the top level of a text."""
    text, line = text_of(statement, lines), _first_line(statement)
    match statement:
        case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant(value=str())):
            pass  # the library's module has its own such import
        case ast.Import() | ast.ImportFrom():
            for alias in [*statement.names]:  # one definition per name
                statement.names = [alias]
                name = alias.asname or alias.name.partition(".")[0]
                yield Definition(name, "import", ast.unparse(statement), line)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield Definition(name, "constant", text, line)
        case ast.ClassDef(name=name):
            yield Definition(name, "class", text, line)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield Definition(name, "function", text, line)
        case _:
            yield Definition("", "other", text, line)


def text_of(node: ast.stmt | ast.expr, lines: list[str]) -> str:
    """Return the text of a statement, with its decorators, or of an expression in these lines."""
    first = _first_line(node)
    text = [line.encode() for line in lines[first - 1 : node.end_lineno]]  # columns count bytes
    text[-1] = text[-1][: node.end_col_offset]
    text[0] = text[0][node.col_offset :]
    return b"\n".join(text).decode()


def _first_line(node: ast.stmt | ast.expr) -> int:
    """Return the first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(part.lineno for part in (node, *decorators))


@contextmanager
def _explain_syntax_errors() -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        line = (error.text or "").strip()
        text = f": {line[:SHOWN_CHARS]}{'...' * (len(line) > SHOWN_CHARS)}" if line else ""
        raise InvalidSkill(f"{place}{error.msg}{text}") from None
    except ValueError as error:  # lone surrogates, null bytes
        raise InvalidSkill(f"the source is not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise InvalidSkill(TOO_DEEP) from None
