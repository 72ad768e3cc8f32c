"""Runs that somebody has changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.checked_run import CheckedRun
from speedrunner.runs.verification.verify import verify
from speedrunner.store.files import StorageError
from speedrunner.store.run_data import load

Change = Callable[[Any], None]


def copy_of(run: Path, folder: Path) -> Path:
    """A run to be changed; whoever removes records removes the sizes of its files, too."""
    copy = Path(shutil.copytree(run, folder / "changed"))
    change(copy, "state.json", lambda state: state.pop("sizes", None))
    return copy


def change(run: Path, name: str, edit: Change, line: int = 0) -> None:
    """Change a record of a run, the whole file or one of its lines."""
    file = run / name
    lines = file.read_text().split("\n") if file.suffix == ".jsonl" else [file.read_text()]
    record = json.loads(lines[line])
    edit(record)
    lines[line] = json.dumps(record)
    file.write_text("\n".join(lines))


def names(run: Path) -> list[str]:
    """All that a run's configuration names, for a reader who trusts it; nothing where it cannot be read."""
    try:
        config = load(run).settings
    except (InvalidConfig, StorageError):
        return []
    return [config.env.name, config.method.name, config.model.name]


def trusting(run: Path) -> list[str]:
    """The options of a command whose user names the same."""
    return [word for name in names(run) if name for word in ("--trust", name)]


def open_checked(run: Path) -> CheckedRun:
    """A run for a single check."""
    return CheckedRun(load(run), names(run))


async def verified(run: Path, trust: Collection[str] | None = None) -> dict[str, Finding]:
    """All checks of a run, by their names.

    Args:
        trust: names that the run may use; by default all of its own.
    """
    said: list[Finding] = []
    found = await verify(run, lambda line: None, said.append, names(run) if trust is None else trust)
    assert said == found.findings
    assert found.passed == all(check.level != "failed" for check in found.findings)
    return {check.name: check for check in found.findings}


def told(check: Finding) -> list[str]:
    """The differences that a check has found, as people read them."""
    return check.details


def statuses(checks: dict[str, Finding]) -> dict[str, str]:
    """How each check came out."""
    return {name: check.level for name, check in checks.items()}
