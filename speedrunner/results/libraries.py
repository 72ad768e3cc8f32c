"""Libraries in numbers: size, call graph, complexity (paper, Appendix H), and their share about combat."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from speedrunner.library.definition import Definition

COMBAT = (
    *("zombie", "skeleton", "arrow", "enemy", "enemies", "hostile", "monster", "creature"),
    *("combat", "attack", "fight", "defend", "defense", "defensive"),
)
"""What makes a function one about combat: the paper says "a creature/combat keyword" and names none. Words
and parts of names count (`zombies_near`, `include_combat`), what merely ends in one does not (`narrow`)."""

_COMBAT = re.compile(rf"(?<![a-z])(?:{'|'.join(COMBAT)})", re.IGNORECASE)


class LibraryStatistics(msgspec.Struct, frozen=True):
    """A library's figures. Of an empty one, those that are means are `None`.

    Attributes:
        functions: public and private skills; classes, constants and imports are none.
        max_depth: edges on the longest path of the call graph, where functions in a circle are one node.
        mean_depth: of all functions; one that calls no other has depth 0.
        density: edges of n (n - 1) possible ones, where n is `functions`; calls of oneself are no edges.
        cyclomatic: mean McCabe complexity by radon, which takes functions within functions for others.
        combat: share of functions whose body holds a word of `COMBAT`; docstring and comments do not count.
    """

    functions: int
    max_depth: int
    mean_depth: float | None
    density: float
    cyclomatic: float | None
    combat: float | None


def library_statistics(definitions: Iterable[Definition]) -> LibraryStatistics:
    """The figures of a module. An edge leads from a function to each other one that its code names.

    Raises `InvalidSkill` where a definition is no Python.
    """
    import networkx  # type: ignore[import-untyped]

    functions = {each.name: each for each in definitions if each.kind == "function"}
    graph = networkx.DiGraph()
    graph.add_nodes_from(functions)
    for name, each in functions.items():
        words = functions.keys() & set(re.findall(r"\w+", each.source)) - {name}
        if words:  # most of a large library name no other function: told without parsing
            graph.add_edges_from((name, other) for other, _, _ in each.names.reads if other in words)
    depth = depths(graph)
    count = len(functions)
    combat = sum(is_about_combat(each.source) for each in functions.values())
    return LibraryStatistics(
        functions=count,
        max_depth=max(depth.values(), default=0),
        mean_depth=sum(depth.values()) / count if count else None,
        density=float(networkx.density(graph)),
        cyclomatic=sum(complexity(each.source) for each in functions.values()) / count if count else None,
        combat=combat / count if count else None,
    )


def depths(graph: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Of each function, the edges on its longest path; those that call each other in a circle are one node.

    Args:
        graph: a `networkx.DiGraph`, or whom each function calls.
    """
    import networkx

    whole = networkx.condensation(networkx.DiGraph(graph))
    depth: dict[int, int] = {}
    for node in reversed(list(networkx.topological_sort(whole))):
        depth[node] = max((depth[called] + 1 for called in whole[node]), default=0)
    return {name: depth[node] for name, node in whole.graph["mapping"].items()}


@lru_cache(maxsize=8192)
def complexity(source: str) -> int:
    """A function's McCabe complexity, as radon counts it."""
    from radon.visitors import ComplexityVisitor  # type: ignore[import-untyped]

    function: int = ComplexityVisitor.from_code(source).functions[0].complexity
    return function


@lru_cache(maxsize=8192)
def is_about_combat(source: str) -> bool:
    """Whether a function's body holds a word of `COMBAT`; its head, docstring and comments do not count."""
    found = _COMBAT.search(source) and _COMBAT.search(_body(source))  # most are told without parsing
    return found is not None


def _body(source: str) -> str:
    """A function's code behind its head and docstring, without comments."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    documented = ast.get_docstring(function, clean=False) is not None
    return "\n".join(map(ast.unparse, function.body[documented:]))
