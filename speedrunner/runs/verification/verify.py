"""Verify a whole run: its plan, policies, token sums and calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

from speedrunner.plain.console import Status
from speedrunner.plain.findings import Finding, Report, report
from speedrunner.plain.plain_records import flat
from speedrunner.runs.identity import checkout
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.runs.verification.checked_run import CheckedRun, Differences
from speedrunner.runs.verification.record_checks import check_plan, check_policies, check_reconciliations
from speedrunner.runs.verification.repeated_calls import repeat_calls
from speedrunner.store.discovery import DAMAGED
from speedrunner.store.run_data import load


async def verify(
    path: Path,
    status: Status,
    say: Callable[[Finding], None],
    trust: Collection[str] = (),
) -> Report:
    """Verify a run without changing it. The notes say why an unchanged run may differ.

    A damaged record fails each check that needs it.

    Args:
        trust: names of foreign classes and model configs that the run may use.
        status: shows the current action.
        say: called with each finding at once.

    Raises:
        RunDirectoryError: the run does not exist, or cannot be read.
        InvalidConfig, EnvironmentFault, InvalidMethod, InvalidModelConfig: a named part
        does not exist here.
        SandboxError, WorkerError: its skills or its environment do not run here.
    """
    run = load(path)
    checked = CheckedRun(run, trust)
    checks: list[Finding] = []

    async def made(name: str, check: Callable[[], Finding | Awaitable[Finding]]) -> None:
        status(f"checking {name}")
        try:
            result = check()
            finding = result if isinstance(result, Finding) else await result
        except (*SETUP_ERRORS, *DAMAGED) as error:
            broken_off = Differences(name)
            broken_off.add(str(path), str(error))
            finding = broken_off.finding("the check could not be completed")
        checks.append(finding)
        say(finding)

    await made("plan", lambda: check_plan(checked))
    await made("policies", lambda: check_policies(checked))
    await made("reconciliations", lambda: check_reconciliations(checked))
    await made("replay", lambda: repeat_calls(checked, status))
    return report(str(path), checks, list(_other_code(checked)))


def _other_code(checked: CheckedRun) -> Iterator[str]:
    """Yield the differences between this checkout and the code that played the run."""
    if checked.process is None:
        yield "the code that played the run is not recorded; other code may explain a difference"
        return
    recorded = {name: getattr(checked.process, name) for name in ("env", "prompts", "code")}
    there, here = flat(recorded), flat(checkout(checked.setup))
    changed = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    if changed:
        yield f"changed since the run was played, which may explain a difference: {', '.join(changed)}"
