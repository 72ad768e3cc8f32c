"""Verify a whole run: its files, calls, prompts, token sums, policies and plan."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path

from serving.errors import ServingError
from serving.plain_records import flat
from speedrunner.config.console import Status
from speedrunner.config.findings import Finding, Report, report
from speedrunner.runs.identity import checkout
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.store import files, json_records
from speedrunner.store.checksums import find_changed, without_checksum
from speedrunner.store.run_data import RunData, load
from speedrunner.verification.differences import OUT_OF_TIME, Differences
from speedrunner.verification.plan_check import Plan
from speedrunner.verification.policy_check import check_policies
from speedrunner.verification.prompt_check import check_prompts
from speedrunner.verification.replay import replay
from speedrunner.verification.subject import OutOfTime, Subject, check_time
from speedrunner.verification.token_sums import check_reconciliations

UNREADABLE = (
    *(*SETUP_ERRORS, ServingError, files.StorageError),
    ValueError,  # invalid keys and labels
)
"""Errors of a run that was changed, or that was made elsewhere."""


LIMIT_S = 3_600.0
"""Maximum seconds of a verification by default."""


async def verify(
    path: Path,
    status: Status,
    say: Callable[[Finding], None],
    trust: Collection[str] = (),
    limit_s: float = LIMIT_S,
) -> Report:
    """Verify a run without changing it. The notes say why an unchanged run may differ.

    A damaged record fails each check that needs it.

    Args:
        trust: names of foreign classes and model configs that the run may use.
        status: shows the current action.
        say: called with each finding at once.
        limit_s: maximum seconds for all checks. The rest is then `not checked`.

    Raises:
        RunDirectoryError: the run does not exist.
        InvalidConfig, EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidModelConfig: a named part
        does not exist here, and the run's files match their checksums.
        SandboxError, WorkerError: its skills or its environment do not run here.
    """
    deadline = time.monotonic() + limit_s
    run = load(path)
    checks = [check_files(run, deadline)]
    say(checks[0])
    try:
        subject = Subject(run, trust, deadline)
        plan = Plan(subject)
    except UNREADABLE as error:
        if checks[0].level != "failed":
            raise
        for name in NAMES:
            checks.append(Finding(name, "not checked", str(error)))
            say(checks[-1])
        return report(str(path), checks)

    async def made(name: str, check: Callable[[], Finding | Awaitable[Finding]]) -> None:
        status(f"checking {name}")
        try:
            found = check()
            one = found if isinstance(found, Finding) else await found
        except OutOfTime:
            one = Finding(name, "not checked", OUT_OF_TIME, is_late=True)
        except UNREADABLE as error:
            broken_off = Differences(name)
            broken_off.differs(str(path), str(error))
            one = broken_off.finding("the check could not be completed")
        checks.append(one)
        say(one)

    await made("plan", plan.check)
    await made("policies", lambda: check_policies(subject))
    await made("reconciliations", lambda: check_reconciliations(subject, is_finished=plan.is_finished))
    await made("prompts", lambda: check_prompts(subject))
    await made("replay", lambda: replay(subject, status))
    return report(str(path), checks, list(_other_code(subject)))


NAMES = ("plan", "policies", "reconciliations", "prompts", "replay")
"""The checks after that of the files."""


def check_files(run: RunData, deadline: float) -> Finding:
    """Check that every file matches its checksum. Raises `StorageError` if `state.json` is missing or
    invalid.

    Args:
        deadline: when it has to end, in seconds of `time.monotonic`.
    """
    found, state = Differences("files"), run.state
    path = run.files.state
    text = files.read_content(path) if path.exists() else b""
    if not text and run.episodes:
        found.differs("state.json", "is missing, although episodes were played")
        return found.finding("no checksums are stored")
    if text != json_records.format_record(state) or state.digest != json_records.own_digest(state):
        found.differs("state.json", "does not match its own checksum")
    try:
        for name, what in find_changed(run.path, state.checksums, partial(check_time, deadline)):
            found.differs(name, what)
    except OutOfTime:
        return found.finding("some of the files", is_late=True)
    size = sum(checksum.size for checksum in state.checksums.values())
    rest = without_checksum(run.path, state.checksums)
    later = f"; {sum(rest.values())} later bytes of {', '.join(rest)} have no checksum" if rest else ""
    return found.finding(f"{len(state.checksums)} files, {size} bytes with checksums{later}")


def _other_code(subject: Subject) -> Iterator[str]:
    """Yield the differences between this checkout and the code that played the run."""
    if subject.process is None:
        yield "the code that played the run is not recorded; other code may explain a difference"
        return
    recorded = {name: getattr(subject.process, name) for name in ("env", "prompts", "code")}
    there, here = flat(recorded), flat(checkout(subject.setup))
    changed = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    if changed:
        yield f"changed since the run was played, which may explain a difference: {', '.join(changed)}"
