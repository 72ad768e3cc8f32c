"""Renaming a function in source text, without touching anything else of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from speedrunner.library.skill_names import Block, bindings
from speedrunner.library.skill_source import InvalidSkill


def renamed(source: str, old: str, new: str, where: str) -> str:
    """Return the text with a module's function called by another name.

    Only the function's own definition and references to it change; comments and docstrings stay.

    Args:
        source: text of one function or class.
        where: its name, for the error.

    Raises:
        InvalidSkill: the text uses one of the names for something else, too.
    """
    tree = ast.parse(source)
    bound = {name for block in tree.body if isinstance(block, Block) for name, _ in bindings(block)}
    for name in (old, new):
        if name in bound:
            raise InvalidSkill(
                f"{where} uses {name} also as a name of its own; change that first, then rename"
            )
    lines = source.splitlines(keepends=True)
    # From the end, so that the places before stay where they are; columns count bytes.
    for line, column in sorted(_places(tree, source, old), reverse=True):
        text = lines[line - 1].encode()
        end = column + len(old.encode())
        lines[line - 1] = (text[:column] + new.encode() + text[end:]).decode(errors="replace")
    changed = "".join(lines)
    if not _says(changed, tree, _Renaming(old, new)):
        raise InvalidSkill(f"{where} cannot be changed automatically; write it anew with the other name")
    return changed


def _places(tree: ast.Module, source: str, name: str) -> Iterator[tuple[int, int]]:
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            yield node.lineno, node.col_offset
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            found = re.search(rf"\bdef\s+({re.escape(name)})\b", lines[node.lineno - 1])
            if found:
                yield node.lineno, len(lines[node.lineno - 1][: found.start(1)].encode())


class _Renaming(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._new if node.id == self._old else node.id
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new if node.name == self._old else node.name
        return self.generic_visit(node)


def _says(source: str, tree: ast.Module, change: ast.NodeTransformer) -> bool:
    try:
        return ast.dump(ast.parse(source)) == ast.dump(change.visit(tree))
    except (SyntaxError, ValueError, RecursionError):
        return False
