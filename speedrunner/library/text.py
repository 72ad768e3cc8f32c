"""Libraries as text for people: their source, what changed between versions, what calls what."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from speedrunner.library.library import Library
from speedrunner.store.records import Policy

EMPTY = "(the library is empty)"


def source_text(policy: Policy) -> str:
    """The library's module, each function under a comment on who may call it and which sleeps wrote it."""
    skills = (
        f"# {_visibility(skill.public)}, from sleep {skill.created}"
        + (f", edited in sleep {skill.edited}" if skill.edited != skill.created else "")
        + f"\n{skill.source}"
        for skill in policy.skills
    )
    return "\n\n\n".join(filter(None, [policy.preamble, *skills])) or EMPTY


def diff_lines(before: Policy, after: Policy) -> Iterator[str]:
    """What changed, as a unified diff; nothing where both are the same."""
    old, new = _comparable(before), _comparable(after)
    names = f"v{before.version:04d}", f"v{after.version:04d}"
    yield from difflib.unified_diff(old, new, names[0], names[1], lineterm="", n=2)


def graph_lines(library: Library) -> Iterator[str]:
    """The call graph as trees that begin at the skills that no other skill calls.

    Each skill's own calls are shown where it occurs first; `...` stands for them afterwards.
    """
    if not library.skills:
        yield EMPTY
    graph = library.call_graph()
    public = {skill.name: skill.public for skill in library.skills}
    shown: set[str] = set()

    def tree(name: str, depth: int) -> Iterator[str]:
        pad = "  " * depth
        again = name in shown and any(called != name for called in graph[name])
        yield f"{pad}{name} ({_visibility(public[name])}){' ...' if again else ''}"
        if again:
            return
        shown.add(name)
        primitives = [called for called in graph[name] if called not in graph]
        if primitives:
            yield f"{pad}  {', '.join(primitives)}"
        for called in graph[name]:
            if called in graph and called != name:
                yield from tree(called, depth + 1)

    for name in graph:
        if not library.callers(name):
            yield from tree(name, 0)
    for name in graph:  # circles, which have no beginning
        if name not in shown:
            yield from tree(name, 0)


def _visibility(public: bool) -> str:
    return "public" if public else "private"


def _comparable(policy: Policy) -> list[str]:
    lines = policy.preamble.splitlines()
    for skill in policy.skills:
        lines += ["", f"# {_visibility(skill.public)}", *skill.source.splitlines()]
    return lines
