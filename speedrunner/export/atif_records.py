"""Format and records of exported ATIF trajectories."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import msgspec

from speedrunner.config.optional import optional
from speedrunner.export.atif_steps import NAME, Json, turns_of
from speedrunner.store import files

SCHEMA = "ATIF-v1.8"

FORMAT = 1
"""Version of what `extra.speedrunner` contains."""

CONVERSATIONS = re.compile(
    r"(carried/[0-9]{4,}/)?(trajectories/batch_[0-9]{4,}|evaluations/[0-9]{4,}|sleeps/[0-9]{4,})"
)
"""Record files of conversations, without their suffix."""

Documents = dict[str, Json]
"""Documents of one record, by file name."""


class Note(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The part of a document that ATIF has no field for.

    Attributes:
        format: see `FORMAT`.
        episode: the episode without its turns; only in its first document.
        sleep: the sleep without its agents and attempts; only in its first document.
        agent: an agent of a sleep, without its turns.
    """

    format: int
    episode: Json | None = None
    sleep: Json | None = None
    agent: Json | None = None


def validate(document: Json, where: str) -> None:
    """Validate a document with the models of the package `atif`.

    Raises:
        NotInstalled: the package is missing.
        StorageError: the document is no valid trajectory.
    """
    atif = optional("atif", "atif", "an ATIF trajectory")
    try:
        atif.Trajectory.model_validate(document)
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else {"loc": (), "msg": str(error)}
        place = ".".join(map(str, first["loc"]))
        raise files.StorageError(f"{where} is no valid trajectory: {place or 'it'}: {first['msg']}") from None


def note_of_document(document: Json) -> Note:
    """Return a document's note. Raises `LookupError`, `TypeError` or `msgspec.ValidationError`."""
    return msgspec.convert(document["extra"][NAME], Note)


def episode_of(documents: Documents) -> bytes:
    """Return the JSON line of an episode. Raises `LookupError`, `TypeError` or `ValueError`."""
    return msgspec.json.encode(_rebuilt_episode(list(documents.values())))


def _rebuilt_episode(documents: list[Json]) -> Json:
    record = note_of_document(documents[0]).episode
    if record is None:
        raise ValueError("its first document does not have the episode")
    turns = sorted((each for document in documents for each in _numbered(document)), key=itemgetter(0))
    if [number for number, _ in turns] != list(range(len(turns))):
        raise ValueError("its turns have gaps")
    return {**record, "turns": [turn for _, turn in turns]}


def sleep_of(documents: Documents) -> bytes:
    """Return the JSON of a sleep's file. Raises `LookupError`, `TypeError` or `ValueError`."""
    agents: list[Json] = []
    attempts: dict[str, list[Json]] = {}
    record: Json | None = None
    for key, document in documents.items():
        note = note_of_document(document)
        record = note.sleep if record is None else record
        if key.startswith("attempt-"):
            attempts.setdefault(key.rpartition("-")[0], []).append(document)
        elif note.agent is not None:
            turns = [turn for _, turn in _numbered(document)]
            agents.append({**note.agent, "turns": turns})
    if record is None:
        raise ValueError("its first document does not have the sleep")
    whole = {**record, "agents": agents}
    if attempts:
        whole["attempts"] = [_rebuilt_episode(each) for each in attempts.values()]
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _numbered(document: Json) -> list[tuple[int, Any]]:
    return list(turns_of(document["steps"]))
