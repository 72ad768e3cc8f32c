"""Rebuild a run from the ATIF trajectories and records that `speedrunner export --to atif` wrote.

The folder may come from someone else. Only file names of the layout are read, links are not followed, and
nothing in a file decides where something is written. Memory is bounded: one record at a time, whose
trajectories take at most `ROOM` bytes. `speedrunner verify` checks the rebuilt run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from speedrunner.export.atif_records import (
    CONVERSATIONS,
    FORMAT,
    SCHEMA,
    Documents,
    episode_of,
    note_of_document,
    sleep_of,
    validate,
)
from speedrunner.store import files, json_lines, json_records
from speedrunner.store.folders import record_folder
from speedrunner.store.records import SleepRecord, Trajectory
from speedrunner.store.run_data import RunData, load

RECORDS = re.compile(
    r"config\.yaml|(state|reading)\.json|(processes|episodes|requests|tools|reconciliation|sleep)\.jsonl"
    r"|(carried/[0-9]{4,}/)?policies/v[0-9]{4,}/[a-z]+\.[a-z]+|carried/[0-9]{4,}/config\.yaml"
)
"""Record files that are copied unchanged."""

DOCUMENTS = {
    "trajectories": re.compile(r"[0-9]{5,}-[0-9]{4,}\.json"),
    "evaluations": re.compile(r"[0-9]{5,}-[0-9]{4,}\.json"),
    "sleeps": re.compile(r"(agent|attempt-[0-9]{4,})-[0-9]{4,}\.json"),
}
"""Names of trajectories in each folder. An episode's have its line number in common."""


def import_run(source: Path, out: Path) -> RunData:
    """Rebuild an exported run as `out`, which must be missing or empty. Return the run.

    Raises:
        NotInstalled: the package `atif` is missing.
        StorageError: `source` is no whole export of a run, a file is damaged or too large, or the disk
            refuses.
        InvalidConfig: the run's configuration cannot be read.
    """
    with files.explain_errors(source, "read"):
        source.stat()
    if not (source / "records" / "config.yaml").is_file():
        raise files.StorageError(
            f"{source} is no exported run: it has no records/config.yaml. Trajectories of other tools have no"
            " configuration, policies and ledger, so they cannot become a run"
        )
    names = _walk(source)
    _ = load(source / "records").settings
    with record_folder(out) as hidden:
        for name in names:
            top, _, record = name.partition("/")
            if top == "records" and RECORDS.fullmatch(record):
                _write(hidden / record, _content(source / name))
        for folder, own in groupby(names, key=lambda each: each.rpartition("/")[0]):
            if found := CONVERSATIONS.fullmatch(folder):
                _write_conversations(hidden / folder, found[2].partition("/")[0], source, list(own))
        _ = load(hidden).state
    return load(out)


def _walk(root: Path) -> list[str]:
    """Return the files below a folder, relative to it, sorted. Raises `StorageError` for a linked folder."""
    found: list[str] = []
    for place, folders, here in os.walk(root):
        folder = Path(place)
        for each in (folder, *(folder / name for name in folders)):
            if each.is_symlink():
                raise files.StorageError(
                    f"{each} is a link, which is not followed: replace it with its target"
                )
        found += (str((folder / name).relative_to(root)) for name in here)
    return sorted(found)


def _write_conversations(target: Path, kind: str, source: Path, names: list[str]) -> None:
    """Write the record file of a batch, an evaluation or a sleep from its trajectories."""
    known = [each for each in names if DOCUMENTS[kind].fullmatch(each.rpartition("/")[2])]
    if not known:
        return
    if kind == "sleeps":
        _write(target.with_name(f"{target.name}.json"), _sleep(source, known))
    else:
        _write(target.with_name(f"{target.name}.jsonl"), _episodes(source, known))


def _content(path: Path) -> Iterator[bytes]:
    """Yield a record file's content, with at most one line of JSON in memory."""
    if path.suffix != ".jsonl":
        yield files.read_content(path)
        return
    for line in json_lines.raw_lines(path):
        yield line + b"\n"


def _episodes(source: Path, names: list[str]) -> Iterator[bytes]:
    """Yield the lines of a batch or an evaluation."""
    by_record = groupby(names, key=lambda each: each.rpartition("/")[2].partition("-")[0])
    for number, (key, own) in enumerate(by_record, start=1):
        where = f"{source / names[0]}".rpartition("/")[0]
        if int(key) != number:
            raise files.StorageError(f"{where} has a trajectory of line {int(key)} and none of line {number}")
        line = _rebuild(source, list(own), episode_of)
        json_records.as_record(line, Trajectory, f"{where}, line {number},")
        yield line + b"\n"


def _sleep(source: Path, names: list[str]) -> Iterator[bytes]:
    """Yield the content of a sleep's file."""
    content = _rebuild(source, names, sleep_of)
    json_records.as_record(content, SleepRecord, source / names[0])
    yield content


def _rebuild(source: Path, names: list[str], rebuild: Callable[[Documents], bytes]) -> bytes:
    """Return the record of these documents. Raises `StorageError`."""
    documents = Documents()
    for each in names:
        document = _document(source / each)
        for step in document["steps"]:
            for ids in ("prompt_token_ids", "completion_token_ids"):  # the step's note has them, too
                (step.get("metrics") or {}).pop(ids, None)
        documents[each.rpartition("/")[2]] = document
    try:
        return rebuild(documents)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        first = source / names[0]
        raise files.StorageError(
            f"{first} and the other trajectories of its record do not give a record: {error}"
        ) from error


def _document(path: Path) -> dict[str, Any]:
    """Return a valid trajectory that SpeedRunner exported. Raises `StorageError`."""
    document: dict[str, Any] = json_records.read_json(path)
    schema = document.get("schema_version")
    if schema != SCHEMA:
        raise files.StorageError(f"{path} has schema_version {schema!r:.40}; only {SCHEMA} is read")
    validate(document, str(path))
    try:
        found = note_of_document(document).format
    except LookupError:
        raise files.StorageError(
            f"{path} was not exported by SpeedRunner: it has no extra.speedrunner"
        ) from None
    except (TypeError, msgspec.ValidationError) as error:
        raise files.StorageError(
            f"{path} was not exported by SpeedRunner, or has changed: extra.speedrunner: {error}"
        ) from None
    if found != FORMAT:
        raise files.StorageError(
            f"{path} has format {found} of extra.speedrunner; this version reads format {FORMAT}"
        )
    return document


def _write(target: Path, content: Iterator[bytes]) -> None:
    """Write a file of the run and the folders above it, for their owner only."""
    with files.explain_errors(target, "written"):
        target.parent.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
        with files.open_new(target) as file:
            file.writelines(content)
