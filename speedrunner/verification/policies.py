"""Whether each sleep's accepted edits lead from one policy version to the next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from speedrunner.findings import Finding
from speedrunner.library.definition import Definition
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Edit, EditAction, Policy
from speedrunner.store.stored_run import sleep_key
from speedrunner.verification.differences import Differences
from speedrunner.verification.subject import Subject

UNNAMED = "sleeps of an earlier layout, in which the new names of renamed skills were not recorded"


def policies(subject: Subject) -> Finding:
    """Follow the edits of all sleeps. Raises `StorageError`."""
    found = Differences("policies")
    versions, records = (
        subject.directory.policies.versions(),
        {each.sleep: each for each in subject.data.sleeps},
    )
    if versions != list(range(len(versions))):
        found.differs("policies", f"the versions have gaps: {', '.join(map(str, versions))}")
    edits = 0
    before: Library | None = None
    shown: dict[str, bool] = {}
    for version in versions:
        name = f"policies/v{version:04d}"
        try:
            policy = subject.policy(version)
            after = Library(subject.setup.env.primitives).of(policy)
        except InvalidPolicy as error:
            found.differs(name, str(error))
            before = None
            continue
        if policy.version != version:
            found.differs(name, f"its library.json says that it is version {policy.version}")
        if version == 0:
            _check_first(subject, policy, found)
        elif version not in records:
            found.differs(name, f"there is no {sleep_key(version)} that made it")
        elif before is not None:
            accepted = [edit for edit in records[version].edits if edit.error is None]
            edits += len(accepted)
            if any(edit.action == "rename" and edit.new_name is None for edit in accepted):
                found.left_out[UNNAMED] += 1
            else:
                _Sleep(version, before, after, shown, found).follow(accepted)
        before, shown = after, _shown(subject, policy)
    return found.finding(f"{len(versions)} versions, to which {edits} accepted edits lead")


def _check_first(subject: Subject, policy: Policy, found: Differences) -> None:
    """Version 0 is the method's own, where it is not another run's."""
    setup = subject.setup
    if setup.config.run.start_from is None and policy != setup.method.initial():
        found.differs("policies/v0000", f"it is not what {setup.config.method.name} begins with")


def _shown(subject: Subject, policy: Policy) -> dict[str, bool]:
    """Visibility of a policy's skills as the method gives them to its actor, which sleeps may begin with."""
    setup = subject.setup
    spec = setup.method.agent(policy, [*setup.split.train, *setup.split.test][0], setup.env)
    return {each.name: each.public for each in spec.library.skills}


@dataclass
class _Trail:
    """What became of one function in a sleep: its name before, if it was there, and the edits about it."""

    origin: str | None
    edits: list[EditAction] = field(default_factory=list)


class _Sleep:
    """One sleep's accepted edits, between the libraries before and after it."""

    def __init__(
        self, number: int, before: Library, after: Library, shown: dict[str, bool], found: Differences
    ) -> None:
        self._number = number
        self._before = before
        self._after = after
        self._shown = shown
        self._found = found
        self._trails = {name: _Trail(name) for name in before.by_name}
        self._shared: dict[str, int] = {}
        """How many edits were about each shared definition."""
        self._renames: list[tuple[str, str]] = []

    def follow(self, edits: Sequence[Edit]) -> None:
        """Follow each function through the edits, and compare where that leads with what is there."""
        for edit in edits:
            for name in edit.names:
                self._apply(edit, name)
        for name in sorted(self._trails.keys() ^ self._after.by_name.keys()):
            state = "is there" if name in self._after.by_name else "is not there"
            self._differs(f"{name} {state}, and the sleep's accepted edits say otherwise")
        for name in sorted(self._trails.keys() & self._after.by_name.keys()):
            self._compare(name, self._trails[name])
        self._compare_shared(edits)

    def _apply(self, edit: Edit, name: str) -> None:
        """Take one function one edit further."""
        if edit.action == "write":
            self._trails.setdefault(name, _Trail(None))
        trail = self._trails.get(name)
        if trail is None:
            if edit.action == "edit" and name in {**self._before.shared, **self._after.shared}:
                self._shared[name] = self._shared.get(name, 0) + 1
            else:
                self._differs(f"{edit.action} of {name} is recorded, which was not there then")
            return
        trail.edits.append(edit.action)
        if edit.action in ("delete", "rename"):
            del self._trails[name]
        if edit.action == "rename" and edit.new_name is not None:
            self._trails[edit.new_name] = trail
            self._renames.append((name, edit.new_name))

    def _compare(self, name: str, trail: _Trail) -> None:
        """Whether a function's text, visibility and numbers are what its edits allow."""
        now, edits, sleep = self._after.by_name[name], trail.edits, self._number
        allowed = {(sleep, sleep)}
        if trail.origin is not None:
            old, definition = self._before.by_name[trail.origin], self._before.named[trail.origin]
            source = self._after.named[name].source
            text = source != self._renamed(definition)
            seen = now.public not in (old.public, self._shown.get(old.name))
            writes, shown = edits.count("write"), edits.count("visibility")
            changes = writes + edits.count("edit")
            if (text and not changes) or (seen and not writes + shown):
                self._differs(f"{name} is not as it was, and no accepted edit says so")
            idle = changes == 1 and not text and not (writes and seen)
            if idle or (shown == 1 and not writes and not seen):
                self._differs(f"an accepted edit of {name} has left no trace")
            moved = source != definition.source or seen
            may_move = edits or self._before.shared != self._after.shared  # which functions use
            allowed = {(old.created, each) for each in ([] if moved else [old.edited])}
            allowed |= {(old.created, sleep)} if moved or may_move else set()
        if (now.created, now.edited) not in allowed:
            told = " or ".join(f"{made} and {edited}" for made, edited in sorted(allowed))
            given = f"{now.created} and {now.edited}"
            self._differs(f"{name}: made and last edited in sleeps {given}, which should be {told}")

    def _compare_shared(self, edits: Sequence[Edit]) -> None:
        """Whether imports, constants and classes changed by edits alone, and by each that names them."""
        before, after = self._before.shared, self._after.shared
        if before != after and not edits:
            self._differs("what its functions share is not as it was, and there is no accepted edit")
        for name, times in self._shared.items():
            written = any(edit.action == "write" for edit in edits)
            if times == 1 and not written and before.get(name) == after.get(name):
                self._differs(f"an accepted edit of {name} has left no trace")

    def _renamed(self, definition: Definition) -> str:
        """A function's text with the sleep's renames in it."""
        for name, new_name in self._renames:
            if definition.name == name or definition.mentions(name):
                with suppress(InvalidSkill):
                    definition = definition.renamed(name, new_name)
        return definition.source

    def _differs(self, what: str) -> None:
        self._found.differs(f"policies/v{self._number:04d}", what)
