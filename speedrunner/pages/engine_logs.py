"""The latest state of engines, from the lines that vLLM logs every ten seconds while it works."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from speedrunner.store.files import open_regular

TAIL_BYTES = 64 * 1024
"""Bytes at the end of a log that are read."""

FRESH_S = 60.0
"""Seconds after its last line at which a log says nothing about the present."""

LOGS = "*server.log"
"""Names of logs, in a run's directory and in the folder of a sweep."""

_LINE = re.compile(
    r"Engine (\d{1,6}): .*?prompt throughput: ([\d.]{1,12}) .*?generation throughput: ([\d.]{1,12}) "
    r".*?Running: (\d{1,9}) reqs, Waiting: (\d{1,9}) reqs"
    r"(?:.*?KV cache usage: ([\d.]{1,7})%)?(?:.*?Prefix cache hit rate: ([\d.]{1,7})%)?"
)


START = "non-default args: "
"""Part of a line that vLLM logs once when it starts."""


class EngineState(msgspec.Struct, frozen=True):
    """What an engine last wrote.

    Attributes:
        log: its log.
        engine: its number, for several replicas behind one address.
        prompt, output: computed prompt tokens and output tokens per second.
        running, waiting: numbers of requests.
        cache_use, cached: percent of the KV cache in use, and of prompt tokens from the prefix cache;
            `None` if unknown.
    """

    log: str
    engine: int
    prompt: float
    output: float
    running: int
    waiting: int
    cache_use: float | None
    cached: float | None


def list_engine_states(runs: Iterable[Path]) -> list[EngineState]:
    """Return the state of the engines that work now for these runs. Unreadable logs are left out."""
    folders = dict.fromkeys(folder for run in runs for folder in (run, run.parent))
    logs = dict.fromkeys(log for folder in folders for log in sorted(folder.glob(LOGS)))
    return [state for log in logs for state in read_engine_states(log, time.time())]


def read_engine_states(log: Path, now: float) -> list[EngineState]:
    """Return the last state of each engine of a log since the last start, or nothing if the log is older than
    `FRESH_S`."""
    try:
        with os.fdopen(open_regular(log, os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            if now - found.st_mtime > FRESH_S:
                return []
            file.seek(max(found.st_size - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return []
    states: dict[int, EngineState] = {}
    for line in lines:
        if START in line:
            states.clear()
        if match := _LINE.search(line[:1_000]):
            engine, prompt, output, running, waiting, use, hits = match.groups()
            try:
                states[int(engine)] = EngineState(
                    str(log), int(engine), float(prompt), float(output), int(running), int(waiting),
                    float(use) if use else None, float(hits) if hits else None,
                )  # fmt: skip
            except ValueError:  # such as 1.2.3
                continue
    return [states[engine] for engine in sorted(states)]
