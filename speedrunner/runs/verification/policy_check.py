"""Check policies: repeat each sleep's accepted edits on the library before it, and compare the result.

The library is pure: an edit parses and writes code without running it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.plain.findings import Finding
from speedrunner.runs.identity import history_digest
from speedrunner.runs.verification.checked_run import CheckedRun, Differences, contrast
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Edit, Policy
from speedrunner.store.stored_run import sleep_key


def check_policies(checked: CheckedRun) -> Finding:
    """Compare each policy version with the result of its sleep's edits on the version before.

    Raises `StorageError` if sleeps or policies cannot be read.
    """
    found = Differences("policies")
    versions = checked.run.policies.versions()
    records = {each.sleep: each for each in checked.run.sleeps}
    if versions != list(range(len(versions))):
        found.differs("policies", f"the versions have gaps: {', '.join(map(str, versions))}")
    edits = 0
    before: Policy | None = None
    for version in versions:
        name = f"policies/v{version:04d}"
        try:
            policy = checked.policy(version)
            after = Library(checked.setup.env.primitives).of(policy)
        except InvalidPolicy as error:
            found.differs(name, str(error))
            before = None
            continue
        if policy.version != version:
            found.differs(name, f"its library.json says that it is version {policy.version}")
        if version == 0:
            _check_first(checked, policy, found)
        elif version not in records:
            found.differs(name, f"{sleep_key(version)}, which made it, is missing")
        elif before is not None:
            accepted = [edit for edit in records[version].edits if edit.error is None]
            edits += len(accepted)
            starts = _possible_starts(checked, before)
            problems = (_problems(start, accepted, after, version) for start in starts)
            for problem in min(problems, key=len):
                found.differs(name, problem)
        before = policy
    return found.finding(f"{len(versions)} versions, made by {edits} accepted edits")


def _check_first(checked: CheckedRun, policy: Policy, found: Differences) -> None:
    """Check that version 0 is the method's own, unless the run starts from another run's policy."""
    setup = checked.setup
    if setup.config.run.start_from is None and policy != setup.method.initial():
        found.differs("policies/v0000", f"it is not the initial policy of {setup.config.method.name}")
    if checked.process is not None and history_digest(checked.run.path) != checked.process.history:
        found.differs("carried", "it is not the history that the run was played with")


def _possible_starts(checked: CheckedRun, policy: Policy) -> list[Library]:
    """Return the possible initial libraries of a sleep: the stored one, with each skill's visibility as
    stored or as the method shows it to the actor."""
    setup = checked.setup
    spec = setup.method.agent(policy, [*setup.split.train, *setup.split.test][0], setup.env)
    shown = {each.name: each.public for each in spec.library.skills}
    skills = tuple(
        msgspec.structs.replace(each, public=shown.get(each.name, each.public)) for each in policy.skills
    )
    starts = [policy] if skills == policy.skills else [policy, msgspec.structs.replace(policy, skills=skills)]
    return [Library(setup.env.primitives).of(each) for each in starts]


def _problems(library: Library, edits: Sequence[Edit], after: Library, sleep: int) -> list[str]:
    """Repeat edits on a library, and return how the result differs from the library after the sleep."""
    for number, edit in enumerate(edits, start=1):
        what = f"accepted edit {number} ({edit.action} of {edit.name:.80})"
        if not edit.is_complete:
            return [f"{what} has no arguments"]
        if edit.action != "write" and edit.name not in library.named:
            return [f"{what} changes a definition that does not exist"]
        try:
            edited = library.apply(edit, sleep=sleep)
        except InvalidSkill as error:
            return [f"{what} is refused: {error!s:.200}"]
        if edited == library:
            return [f"{what} changes nothing"]
        library = edited
    return list(_differences(library, after))


def _differences(replayed: Library, stored: Library) -> Iterator[str]:
    """Yield the differences between a stored library and the result of its edits."""
    for name in sorted(replayed.named.keys() | stored.named.keys()):
        if name not in stored.named:
            yield f"{name} is missing, and the accepted edits lead to it"
        elif name not in replayed.named:
            yield f"{name} is there, and no accepted edit adds it"
        else:
            one, other = stored.named[name].source, replayed.named[name].source
            if one != other:
                yield f"{name} is not as its accepted edits leave it: {contrast(one, other)}"
    for name in sorted(replayed.by_name.keys() & stored.by_name.keys()):
        for field in ("public", "created", "edited"):
            one, other = (getattr(each.by_name[name], field) for each in (stored, replayed))
            if one != other:
                yield f"{name}, {field}: {contrast(one, other)}"
    orders = [[each.name for each in library.definitions] for library in (stored, replayed)]
    if sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]:
        yield f"the order of its definitions: {contrast(*orders)}"
    if [each.name for each in replayed.skills] != [each.name for each in stored.skills]:
        yield "library.json lists the skills in another order than the edits lead to"
