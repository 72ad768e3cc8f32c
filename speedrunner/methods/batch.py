"""Select a sleep's input: the newest batch."""

from __future__ import annotations

from typing import Literal

from speedrunner.store.history import History
from speedrunner.store.records import Trajectory

Overflow = Literal["skip", "discard"]
"""Handling of a part of a batch that is too long for the model's context. `skip` learns nothing from this
part, `discard` nothing in the whole sleep, as the paper says of sleeps."""


def newest_batch(history: History) -> list[Trajectory]:
    """Return the newest batch's scored episodes; an infrastructure error says nothing about a method."""
    batches = history.batches()
    played = history.batch(batches[-1]) if batches else []
    return [each for each in played if each.outcome is not None]
