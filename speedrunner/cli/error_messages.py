"""Report a command's error in one line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from envs import InvalidOption
from serving.errors import ServingError
from speedrunner.cli.init_command import NotWritten
from speedrunner.config.optional import NotInstalled
from speedrunner.config.slurm import SlurmRefused
from speedrunner.methods.method_registry import InvalidMethodOption
from speedrunner.pages.loopback import PortInUse
from speedrunner.results.pairing import CannotCompare
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.runs.shutdown import TimeTooShort
from speedrunner.store.files import StorageError
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

FOR_PEOPLE = (
    *SETUP_ERRORS,
    *(CannotCompare, WorkerError, NotInstalled, NotWritten, PortInUse),
    *(RunStopped, SandboxError, ServingError, SlurmRefused, StorageError, TimeTooShort),
)
"""Errors with a text for people. Any other error is a bug and shows its traceback."""

SECTIONS: dict[type[Exception], str] = {InvalidOption: "env", InvalidMethodOption: "method"}
"""Errors about options, and the section of the keys that set these."""

OPTION = re.compile(r"option '(\w+)' of (?:method )?\S+")
UNKNOWN_OPTION = re.compile(r"has no option '(\w+)'")
"""How such an error names an option, and how one that does not exist."""

NEAR = re.compile(r"(?<=did you mean )\w+(?=\?)|(?<=; its options: )\w+(?:, \w+)*")
"""The options that an error suggests."""

READERS = ("show", "compare", "cost", "report", "view", "status", "export", "library")
"""Commands that only read runs, possibly of someone else."""

UNFIT = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, AssertionError, RecursionError)
"""Errors of readers if records are well-formed and contradict each other."""


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line for a command's error; `None` for a bug, which shows its traceback.

    Contradicting records of a run can make any step of a reader fail. The line then also names the place in
    the code, so that a bug can still be found.
    """
    text = _name_keys(error, arguments)
    if not isinstance(error, FOR_PEOPLE):
        if next(iter(arguments), "") not in READERS or not isinstance(error, UNFIT):
            return None
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"records of the run contradict each other ({type(error).__name__}: {error}, at"
            f" {Path(at.filename).name}:{at.lineno}); run `speedrunner verify` to find the record"
        )
    return f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"


def _name_keys(error: Exception, arguments: Sequence[str]) -> str:
    """Return an error's text, with an option of an environment or a method as its key in the command."""
    section = next((name for kind, name in SECTIONS.items() if isinstance(error, kind)), None)
    if section is None:
        return str(error)
    prefix = f"{section}."
    text = str(error)
    if found := OPTION.search(text):
        key = f"{prefix}{found[1]}"
        return text[: found.start()] + key + re.sub(rf"\b{found[1]}=", f"{key}=", text[found.end() :])
    if found := UNKNOWN_OPTION.search(text):
        near = NEAR.sub(lambda names: re.sub(r"\w+", rf"{prefix}\g<0>", names[0]), text[found.end() :])
        return f"{text[: found.start()]}has no option {prefix}{found[1]}{near}"
    return text
