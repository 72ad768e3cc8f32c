"""Compare the processes that have worked on a run, by what each of them recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from speedrunner.store.records import Process
from typed.records import flat, shown_differences

ACCEPTABLE = ("code.", "versions.", "actor.server.", "inducer.server.")
"""What may change within a run when somebody says so: neither settings nor texts, but results can move."""

TOLD = ("prices.",)
"""What changes nothing but the cost: a run is shown at the prices of its newest process."""

HARMLESS = ("tried", "remark", "gpus", "replicas", "prices", "path", "recipe", "api_key_env")
"""Fields of a card that say nothing about what the model writes; the files behind `path` are compared."""

HARMLESS_FLAGS = ("max-num-seqs", "max-num-batched-tokens")
"""Flags that say how much the engine computes at once. They are derived from the GPU's memory, so a run has
other values on an H200 than on an H100. Like the number of requests in flight, they do not change what the
model may write."""


def changes(before: Process, after: Process) -> list[str]:
    """What differs between two processes of one run, such as `actor.roles.actor.temperature: 0.7 -> 1`.

    Begins with what cannot be accepted, ends with what need not be; see `ACCEPTABLE` and `TOLD`.
    """
    found = shown_differences(_compared(before), _compared(after))
    return sorted(found, key=lambda line: line.startswith(ACCEPTABLE) + 2 * line.startswith(TOLD))


def remarks(processes: Iterable[Process]) -> list[str]:
    """What the cards of the models say of their results, each once."""
    cards = (card for process in processes for card in (process.actor, process.inducer))
    return sorted({f"{card.name}: {card.remark.rstrip('.')}" for card in cards if card.remark})


def process_lines(processes: Sequence[Process]) -> list[str]:
    """Which of a run's processes were not as those before them, and in what."""
    return [
        f"Process {number} of {len(processes)} (from {datetime.fromtimestamp(process.started):%Y-%m-%d %H:%M}"
        f" on) was not as the one before it: {'; '.join(process.changes)}."
        for number, process in enumerate(processes, start=1)
        if process.changes
    ]


def _compared(process: Process) -> dict[str, Any]:
    """What is compared of it, by dotted key."""
    content = msgspec.to_builtins(process)
    content["versions"].pop("code", None)  # a commit; the digests say more
    for role in ("actor", "inducer"):
        for name in HARMLESS:
            content[role].pop(name, None)
        for flag in HARMLESS_FLAGS:
            content[role]["server"]["flags"].pop(flag, None)
    if content["inducer"] == content["actor"]:  # one model: its changes are told once
        del content["inducer"]
    for name in ("started", "host", "pid", "machine", "sandbox", "changes", "seals", "format"):
        content.pop(name, None)
    return flat(content)
