"""What a run is: everything that determines its results, as each process that works on it found it."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
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

MODEL_FILES = (
    *("*.safetensors", "*.bin", "config.json", "generation_config.json", "chat_template*"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
)
"""What a model's folder holds that can change what it writes."""

BLOCK, STRIDE = 4096, 4 * 2**20
"""Bytes that are read of each stretch of a file of more than one stretch: its digest takes seconds then where
all of it would take minutes, and no tensor of `STRIDE` bytes changes unseen."""

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
    env, cards = setup.env, (setup.card, setup.inducer_card)
    method = Path(sys.modules[type(setup.method).__module__].__file__ or "")
    primitives = [[each.name, str(each.signature), each.doc, each.advances] for each in env.primitives]
    templates = [*(CHECKOUT / "speedrunner/agents/prompts").glob("*"), *method.parent.glob("prompts/*")]
    return Process(
        started=round(time.time(), 3),
        host=platform.node(),
        pid=os.getpid(),
        actor=setup.card,
        inducer=setup.inducer_card,
        models={card.name: _model_files(card, say) for card in cards if not card.hosted},
        prices=setup.prices,
        env={
            "description": _digest(env.description),
            "primitives": _digest(primitives),
            "tools": _digest(Library(env.primitives).tools()),
            "limits": _digest([env.limits, env.submits]),
            "tasks": _digest(setup.split),
        },
        prompts={f"{path.parents[1].name}/{path.stem}": _digest_of([path]) for path in sorted(templates)},
        code=_code(sys.modules[type(each).__module__].__file__ for each in (env, setup.method)),
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


def _code(own: Iterable[str | None]) -> dict[str, str]:
    """Digests of our packages, and of the files of somebody's own environment or method."""
    found = {}
    for package in PACKAGES:
        files = (path for path in (CHECKOUT / package).rglob("*") if path.is_file())
        found[package] = _digest_of(sorted(file for file in files if file.suffix not in (".pyc", ".jinja")))
    ours = tuple(f"{CHECKOUT / package}{os.sep}" for package in PACKAGES)
    return found | {
        Path(file).name: _digest_of([Path(file)]) for file in own if file and not file.startswith(ours)
    }


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


def _digest_of(files: Iterable[Path]) -> str:
    """Of the files' names and contents, large files by a block of each stretch."""
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            step = STRIDE if size > STRIDE else max(size, 1)
            for start in range(0, size, step):
                stream.seek(start)
                found.update(stream.read(BLOCK if size > STRIDE else size))
    return found.hexdigest()[:12]
