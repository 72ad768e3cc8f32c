"""The evolution of skills through renames: their versions, and their calls in each training batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import pandas

from speedrunner.results.libraries import is_about_combat
from speedrunner.results.skill_table import RENAMED, SkillHistory, SkillVersion


class Evolution(msgspec.Struct):
    """One skill under all of its names.

    Attributes:
        versions: oldest first.
        batches: calls in training, by the actor and by other code, by the policy that played the batch.
    """

    versions: list[SkillVersion]
    batches: Counter[int]

    @property
    def name(self) -> str:
        """Return the last name."""
        return self.versions[-1].name

    @property
    def calls(self) -> int:
        """Return the calls by the actor and by other code, in all finished episodes."""
        return sum(each.total for each in self.versions)


def follow_skills(history: SkillHistory) -> list[Evolution]:
    """Return the evolutions of a run's skills, in the order in which they were first written."""
    found: list[Evolution] = []
    current: dict[str, Evolution] = {}
    owners: dict[str, list[tuple[int, Evolution]]] = {}
    for version in history.versions:
        before = version.change.removeprefix(RENAMED) if version.change.startswith(RENAMED) else version.name
        evolution = current.pop(before, None)
        if evolution is None:
            evolution = Evolution([], Counter())
            found.append(evolution)
        evolution.versions.append(version)
        current[version.name] = evolution
        owners.setdefault(version.name, []).append((version.sleep, evolution))
    for use in history.uses:
        for name, calls in use.calls.items():
            owner = [evolution for sleep, evolution in owners[name] if sleep <= use.policy][-1]
            owner.batches[use.policy] += calls
    return found


def frame_calls(evolutions: Sequence[Evolution]) -> pandas.DataFrame:
    """Return one row per skill and training batch with a call: `skill`, `batch` (the policy that played it)
    and `calls` (by the actor and by other code)."""
    rows = [(each.name, batch, calls) for each in evolutions for batch, calls in sorted(each.batches.items())]
    return pandas.DataFrame(rows, columns=["skill", "batch", "calls"])


def count_edited_combat(history: SkillHistory, evolutions: Sequence[Evolution], policy: int) -> int:
    """Return the number of a library's functions that are about combat and were not when first written."""
    library = history.libraries[policy].named
    count = 0
    for each in evolutions:
        first = each.versions[0]
        there = [version for version in each.versions if version.sleep <= policy]
        name = there[-1].name if there else ""
        if name in library and is_about_combat(library[name].source):
            count += not is_about_combat(history.libraries[first.sleep].named[first.name].source)
    return count


class Change(msgspec.Struct, frozen=True):
    """One change of a skill.

    Attributes:
        sleep: the sleep that made it; 0: the run started with it.
        what: `written`, `edited`, `renamed from NAME`, `removed` and so on.
        name: the name after the change; before it, if removed.
        public: whether the actor sees it; `None` if removed.
        calls: calls in each training batch from here to the next change.
    """

    sleep: int
    what: str
    name: str
    public: bool | None
    calls: list[int]


def list_changes(evolution: Evolution, batches: Iterable[int]) -> list[Change]:
    """Return the changes of a skill, oldest first.

    Args:
        batches: the policies that played a training batch, ascending.
    """
    found = []
    played = list(batches)
    for version, following in pairwise([*evolution.versions, None]):
        assert version is not None
        calls = [
            evolution.batches[batch]
            for batch in played
            if batch >= version.sleep and (version.until is None or batch < version.until)
        ]
        found.append(Change(version.sleep, version.change, version.name, version.public, calls))
        renamed = following is not None and following.change.startswith(RENAMED)
        if version.removed and version.until is not None and not renamed:
            found.append(Change(version.until, "removed", version.name, None, []))
    return found
