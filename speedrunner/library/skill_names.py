"""Which names a piece of code takes from the module around it, by Python's own scoping."""

from __future__ import annotations

import ast
import copy
import functools
import symtable
from collections.abc import Iterator

Block = ast.FunctionDef | ast.ClassDef


@functools.lru_cache(maxsize=4096)
def mentions(source: str) -> frozenset[str]:
    """Return all names in a valid text, those of annotations and local variables included."""
    return frozenset(each.id for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Name))


def reads(node: Block) -> dict[str, int]:
    """Return the names that a definition takes from the module, each with its first line."""
    names = {name for scope in _scopes(_table(node)) for name in _global_names(scope)}
    lines: dict[str, int] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in names:
            lines[each.id] = min(each.lineno, lines.get(each.id, each.lineno))
    return lines


def needs(node: ast.ClassDef) -> frozenset[str]:
    """Return the names that must be there when a class is defined: its bases, decorators, fields' values."""
    table = _table(node)
    return frozenset(name for scope in (table, *table.get_children()) for name in _global_names(scope))


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


def _table(node: Block) -> symtable.SymbolTable:
    bare = _WithoutTypes().visit(copy.deepcopy(node))
    return symtable.symtable(ast.unparse(bare), "<skill>", "exec")


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for below in table.get_children():
        yield from _scopes(below)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or (outermost and not symbol.is_assigned())):
            yield symbol.get_name()
