"""The definitions that skills share: which skills use them, which are still wanted, and in which order."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Mapping

from speedrunner.library.skill_names import mentions
from speedrunner.library.skill_source import Definition
from speedrunner.store.records import Skill


def users(names: Iterable[str], definitions: Collection[Definition], skills: Iterable[Skill]) -> list[str]:
    """Return the skills that mention one of these names, also through a definition."""
    reached = set(names)
    while more := {each.name for each in definitions if mentions(each.source) & reached} - reached:
        reached |= more
    return [each.name for each in skills if mentions(each.source) & reached]


def preamble_for(skills: Iterable[Skill], definitions: Mapping[str, Definition]) -> str:
    """Return the text of those definitions that the skills mention, what others need first."""
    wanted: set[str] = set()
    more = {name for skill in skills for name in mentions(skill.source)}
    while more:
        wanted |= more
        found = (mentions(each.source) for each in definitions.values() if each.name in more)
        more = {name for names in found for name in names} - wanted
    kept = {name: each for name, each in definitions.items() if name in wanted}
    imports = sorted(each.source for each in kept.values() if each.kind == "import")
    constants = [each.source for each in kept.values() if each.kind == "constant"]
    classes = [kept[name].source for name in in_order(kept)]
    return "\n".join([*imports, *constants, *classes])


def in_order(definitions: Mapping[str, Definition]) -> list[str]:
    """Return the classes so that each stands after those that it needs. Raises `graphlib.CycleError`."""
    classes = {name: each for name, each in definitions.items() if each.kind == "class"}
    needs = {name: sorted(each.needs & classes.keys()) for name, each in classes.items()}
    return list(graphlib.TopologicalSorter(needs).static_order())
