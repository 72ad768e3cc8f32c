"""Which names a piece of code takes from the module around it, and which it binds, by Python's scoping."""

from __future__ import annotations

import ast
import functools
import symtable
import warnings
from collections.abc import Iterable, Iterator

Block = ast.FunctionDef | ast.ClassDef

_HEAD = "from __future__ import annotations\n"
"""Keeps annotations out of the tables of names: they are never evaluated, so their names need not exist."""


@functools.lru_cache(maxsize=4096)
def mentions(source: str) -> frozenset[str]:
    """Return all names in a valid text, those of annotations and local variables included."""
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(source)
    return frozenset(each.id for each in ast.walk(tree) if isinstance(each, ast.Name))


def bindings(block: Block) -> Iterator[tuple[str, int]]:
    """Yield the names that a definition binds in itself, and where: parameters, variables, functions."""
    for node in ast.walk(block):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line):
                yield name, line
            case ast.arg(arg=name, lineno=line) | ast.alias(asname=str(name), lineno=line):
                yield name, line
            case ast.alias(name=name, lineno=line):
                yield name.partition(".")[0], line
            case ast.ExceptHandler(name=str(name), lineno=line):
                yield name, line
            case ast.MatchAs(name=str(name), lineno=line) | ast.MatchStar(name=str(name), lineno=line):
                yield name, line
            case ast.MatchMapping(rest=str(name), lineno=line):
                yield name, line
            case ast.FunctionDef(name=name, lineno=line) | ast.ClassDef(name=name, lineno=line):
                if node is not block:
                    yield name, line


class Scopes:
    """The scopes of one top-level definition.

    Args:
        source: its own text.
    """

    def __init__(self, block: Block, source: str) -> None:
        self._block = block
        with warnings.catch_warnings(action="ignore"):
            self._table = symtable.symtable(_HEAD + source, "<skill>", "exec")

    def reads(self) -> dict[str, int]:
        """Return the names that the definition takes from the module, each with its first line."""
        names = {name for scope in _all(self._table) for name in _from_module(scope)}
        found = (each for each in ast.walk(self._block) if isinstance(each, ast.Name))
        return _first_lines((each.id, each.lineno) for each in found if each.id in names)

    def needs(self) -> frozenset[str]:
        """Return the names that must be there when a class is defined: bases, decorators, fields' values."""
        scopes = (self._table, *self._table.get_children())
        return frozenset(name for scope in scopes for name in _from_module(scope))

    def binds(self) -> dict[str, int]:
        """Return the names that hide those of the module from code in the definition, each with its first
        line. A class's own fields and methods hide nothing from its methods."""
        functions = (each for each in _all(self._table) if each.get_type() == "function")
        names = {each.get_name() for scope in functions for each in scope.get_symbols() if each.is_local()}
        return _first_lines((name, line) for name, line in bindings(self._block) if name in names)


def _all(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for below in table.get_children():
        yield from _all(below)


def _from_module(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        # In a function that is called `top`, which `symtable` takes for the module, local names are both.
        if symbol.is_referenced() and symbol.is_global() and not symbol.is_local():
            yield symbol.get_name()


def _first_lines(found: Iterable[tuple[str, int]]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for name, line in found:
        lines[name] = min(line, lines.get(name, line))
    return lines
