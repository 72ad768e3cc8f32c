"""Facts about the runs: software, machines, and terminations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from speedrunner.results.run_result import RunResult, count_terminations
from speedrunner.store.process_notes import process_lines
from speedrunner.store.records import Machine, Process


class Shared(msgspec.Struct, frozen=True):
    """A property that runs have in common: a machine, a sandbox, versions."""

    what: str
    value: str
    runs: list[str]


class Facts(msgspec.Struct, frozen=True):
    """Facts about all runs.

    Attributes:
        terminations: counts over the episodes of all runs.
        notes: changes between the processes of a run.
    """

    runs: list[RunResult]
    shared: list[Shared]
    terminations: dict[str, int]
    notes: list[str]


def facts(runs: Sequence[RunResult]) -> Facts:
    """Return the facts of runs."""
    shared: dict[tuple[str, str], list[str]] = {}
    notes = []
    for run in runs:
        notes += [f"{run.path}: {line}" for line in process_lines(run.processes)]
        for key in dict.fromkeys(
            (what, value) for process in run.processes for what, value in _list_conditions(process).items()
        ):
            shared.setdefault(key, []).append(run.path)
    found = [Shared(what, value, paths) for (what, value), paths in sorted(shared.items())]
    return Facts([*runs], found, count_terminations(runs), notes)


def _list_conditions(process: Process) -> dict[str, str]:
    return {
        "Hardware": f"{process.host}: {_hardware(process.machine)}",
        "Sandbox": process.sandbox,
        "Versions": ", ".join(f"{name} {version}" for name, version in process.versions.items()),
    }


def _hardware(machine: Machine) -> str:
    gpus = [f"{count} x {name}" for name, count in Counter(machine.gpus).items()]
    return "; ".join([f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb:.0f} GB", *gpus])
