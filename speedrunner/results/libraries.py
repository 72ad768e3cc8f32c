"""Statistics of libraries: size, call graph, complexity (paper, Appendix H), and the share about combat."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache
from typing import NamedTuple

import msgspec

from speedrunner.library.definition import HEADER, Definition

COMBAT = (
    *("zombie", "skeleton", "arrow", "enemy", "enemies", "hostile", "monster", "creature"),
    *("combat", "attack", "fight", "defend", "defense", "defensive"),
)
"""Words that mark a function as about combat: the paper says "a creature/combat keyword" and lists none.
Words and parts of names count (`zombies_near`, `include_combat`), word endings do not (`narrow`)."""

_COMBAT = re.compile(rf"(?<![a-z])(?:{'|'.join(COMBAT)})", re.IGNORECASE)


class LibraryStatistics(msgspec.Struct, frozen=True):
    """A library's statistics. For an empty library, the means are `None`.

    Attributes:
        functions: public and private skills; classes, constants and imports do not count.
        max_depth: edges on the longest path of the call graph, in which a cycle of functions is one node.
        mean_depth: over all functions; a function that calls no other has depth 0.
        density: share of the n (n - 1) possible edges, where n is `functions`; self-calls are not edges.
        cyclomatic: mean McCabe complexity by radon, which counts nested functions separately.
        combat: share of functions with a word of `COMBAT` in their body; docstring and comments do not count.
    """

    functions: int
    max_depth: int
    mean_depth: float | None
    density: float
    cyclomatic: float | None
    combat: float | None


def library_statistics(definitions: Iterable[Definition]) -> LibraryStatistics:
    """Return the statistics of a module. An edge leads from a function to each other function that its code
    names."""
    functions = {each.name: _measure(each.source) for each in definitions if each.kind == "function"}
    calls = {name: each.names & functions.keys() - {name} for name, each in functions.items()}
    depth, count = _depths(calls), len(functions)
    return LibraryStatistics(
        functions=count,
        max_depth=max(depth.values(), default=0),
        mean_depth=sum(depth.values()) / count if count else None,
        density=sum(map(len, calls.values())) / max(count * (count - 1), 1),
        cyclomatic=sum(each.cyclomatic for each in functions.values()) / count if count else None,
        combat=sum(each.combat for each in functions.values()) / count if count else None,
    )


def _depths(calls: Mapping[str, Set[str]]) -> dict[str, int]:
    """Return, for each function, the edges on its longest path; functions that call each other in a cycle are
    one node."""
    below = {name: {name, *called} for name, called in calls.items()}
    for middle in calls:  # Warshall's algorithm
        for reached in below.values():
            if middle in reached:
                reached.update(below[middle])
    depth: dict[str, int] = {}
    for name in sorted(calls, key=lambda name: len(below[name])):  # a called function comes first
        cycle = [other for other in below[name] if name in below[other]]
        called = {called for other in cycle for called in calls[other]}.difference(cycle)
        depth[name] = max((depth[other] + 1 for other in called), default=0)
    return depth


class _Measured(NamedTuple):
    """A function of a library.

    Attributes:
        cyclomatic: McCabe complexity, as radon counts it.
        combat: whether its body contains a word of `COMBAT`; signature, docstring and comments do not count.
        names: names that its code reads from the module; annotations do not count.
    """

    cyclomatic: int
    combat: bool
    names: frozenset[str]


@lru_cache(maxsize=8192)
def _measure(source: str) -> _Measured:
    """Measure a function, which most versions of a library share."""
    from radon.visitors import ComplexityVisitor  # type: ignore[import-untyped]

    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    documented = ast.get_docstring(function, clean=False) is not None
    body = "\n".join(map(ast.unparse, function.body[documented:])) if _COMBAT.search(source) else ""
    names = frozenset(_list_globals(symtable.symtable(f"{HEADER}\n{source}", "<skill>", "exec")))
    return _Measured(
        ComplexityVisitor.from_ast(tree).functions[0].complexity, bool(_COMBAT.search(body)), names
    )


def _list_globals(scope: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that code reads from the module, also in nested scopes."""
    yield from (each.get_name() for each in scope.get_symbols() if each.is_global() and each.is_referenced())
    for nested in scope.get_children():
        yield from _list_globals(nested)
