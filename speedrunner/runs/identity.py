"""What a run is: all that determines its results, as each process that works on it found it.

Of somebody's own environment or method that is their modules, not what these import.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from serving.cards import CHECKOUT, ModelCard, prepare
from speedrunner.config.schema import flat, shown_differences
from speedrunner.library.library import Library
from speedrunner.runs.setup import Setup
from speedrunner.runs.versions import versions
from speedrunner.store.records import Process
from speedrunner.store.rundir import RunDirectoryError

PACKAGES = ("typed", "serving", "envs", "speedrunner")
"""Our code."""

WEIGHTS = ("*.safetensors", "*.bin")
MODEL_FILES = (
    *(*WEIGHTS, "config.json", "generation_config.json", "chat_template*"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
)
"""What a model's folder holds that can change what it writes."""

SOURCES = (".py", ".txt", ".tsv")
"""Files of our packages that are code, or data of it; prompts have digests of their own."""

BLOCK, STRIDE = 4096, 4 * 2**20
"""Bytes that are read of each stretch of weights: all of them would take minutes, and other weights differ in
every large tensor."""

ACCEPTABLE = ("code.", "versions.", "actor.server.", "inducer.server.")
"""What may change within a run when somebody says so: neither settings nor texts, but results can move."""

HARMLESS = ("tried", "holds", "gpus", "replicas", "prices", "path", "recipe", "api_key_env")
"""Fields of a card that say nothing about what the model writes; the files behind `path` are compared."""


def identity(setup: Setup, say: Callable[[str], None]) -> Process:
    """What this process works with; a bundled model's folder is made first where it is missing.

    Args:
        say: gets a line of what is done.

    Raises:
        InvalidCard, ServerFailed: a model's folder is missing, or cannot be made.
    """
    env, cards = setup.env, {card.name: card for card in (setup.card, setup.inducer_card)}
    primitives = [[each.name, str(each.signature), each.doc, each.advances] for each in env.primitives]
    return Process(
        started=round(time.time(), 3),
        host=platform.node(),
        pid=os.getpid(),
        actor=setup.card,
        inducer=setup.inducer_card,
        models={name: _model_files(card, say) for name, card in cards.items() if not card.hosted},
        prices=setup.prices,
        env={
            "description": _digest(env.description),
            "primitives": _digest(primitives),
            "tools": _digest(Library(env.primitives).tools()),
            "limits": _digest([env.limits, env.submits]),
            "tasks": _digest(setup.split),
        },
        prompts=_prompts("actor", CHECKOUT / "speedrunner/agents")
        | _prompts("method", _module_file(type(setup.method)).parent),
        code=_code([type(env), type(setup.method)]),
        versions=versions(),
    )


def changes(before: Process, after: Process) -> list[str]:
    """What differs between two processes of one run, such as `actor.roles.actor.temperature: 0.7 -> 1`.

    Begins with what cannot be accepted; see `ACCEPTABLE`. Prices are no difference: a run is shown at those
    of its newest process.
    """
    found = shown_differences(_compared(before), _compared(after))
    return sorted(found, key=lambda line: line.startswith(ACCEPTABLE))


def continued(path: Path, before: Process, after: Process, *, accept: bool) -> Process:
    """Return `after` with its changes, if it may go on with what `before` has played.

    Raises:
        RunDirectoryError: it would make another run of it, or its changes are not accepted.
    """
    found = changes(before, after)
    if found and not found[0].startswith(ACCEPTABLE):
        raise RunDirectoryError(
            f"{path} was played with something else: {'; '.join(found)};"
            " take the change back, or name another directory with run.dir"
        )
    if found and not accept:
        raise RunDirectoryError(
            f"{path} was played by other code: {'; '.join(found)}; go back to it, name another directory with"
            " run.dir, or accept the change, which the run then records: run.accept_changes=true"
        )
    return msgspec.structs.replace(after, changes=found)


def process_lines(processes: Sequence[Process]) -> list[str]:
    """Which of a run's processes were not as those before them, and in what."""
    return [
        f"Process {number} of {len(processes)} (from {datetime.fromtimestamp(process.started):%Y-%m-%d %H:%M}"
        f" on) was not as the one before it, which was accepted: {'; '.join(process.changes)}."
        for number, process in enumerate(processes, start=1)
        if process.changes
    ]


def _compared(process: Process) -> dict[str, Any]:
    """What is compared of it, by dotted key."""
    content = msgspec.to_builtins(process)
    del content["versions"]["code"]  # a commit; the digests say more
    for role in ("actor", "inducer"):
        for name in HARMLESS:
            content[role].pop(name, None)
    if content["inducer"] == content["actor"]:  # one model: its changes are told once
        del content["inducer"]
    for name in ("started", "host", "pid", "prices", "changes", "format"):
        content.pop(name, None)
    return flat(content)


def _prompts(whose: str, folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.glob("prompts/*.jinja")) if path.is_file())
    return {f"{whose}/{path.stem}": _digest_of([path]) for path in files}


def _code(own: Iterable[type]) -> dict[str, str]:
    """Digests of our packages, and of the modules of somebody's own environment or method."""
    found = {}
    for package in PACKAGES:
        files = (
            path for path in (CHECKOUT / package).rglob("*") if path.suffix in SOURCES and path.is_file()
        )
        found[package] = _digest_of(sorted(files), CHECKOUT)
    theirs = {each.__module__: _module_file(each) for each in own}
    return found | {
        name: _digest_of([file]) for name, file in theirs.items() if name.partition(".")[0] not in PACKAGES
    }


def _module_file(kind: type) -> Path:
    return Path(inspect.getfile(kind))


def _model_files(card: ModelCard, say: Callable[[str], None]) -> dict[str, str]:
    """Digests of a model's files by their names; none of what a commit on the hub determines."""
    path = prepare(card, say)
    return {} if card.id is not None else _folder(Path(path))


@cache
def _folder(path: Path) -> dict[str, str]:
    """Read once, also where many runs share the model."""
    files = {file for pattern in MODEL_FILES for file in path.glob(pattern) if file.is_file()}
    return {file.name: _digest_of([file]) for file in sorted(files)}


def _digest(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:12]


def _digest_of(files: Iterable[Path], root: Path | None = None) -> str:
    """Of the files' names, below a root if one is given, and contents; of weights a block of each stretch."""
    found = hashlib.sha256()
    for file in files:
        sampled = any(file.match(pattern) for pattern in WEIGHTS)
        size = file.stat().st_size
        found.update(f"{file.relative_to(root) if root else file.name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in range(0, size, STRIDE):
                stream.seek(start)
                found.update(stream.read(BLOCK if sampled and size > STRIDE else STRIDE))
    return found.hexdigest()[:12]
