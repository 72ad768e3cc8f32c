"""The training episodes that the record of a sleep names: evidence of what its agents read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from speedrunner.store.records import SleepRecord, Turn

_KEY = re.compile(r"(?<![\w/])train/\d{4,}(?!\d)")
_LOADING = "load_trajectories("
"""A call in the inducer's code that loads recorded episodes, and so can read them without naming any."""


class NamedEpisode(msgspec.Struct, frozen=True):
    """A training episode with its key in the record of a sleep.

    Attributes:
        prompted: whether a prompt contains the key: as a headline, or with the episode's text.
        turns: turns, from 1, with the key in their call or its result.
    """

    episode: str
    prompted: bool
    turns: list[int]


class Evidence(msgspec.Struct, frozen=True):
    """What the record of a sleep says about the episodes that its agents read.

    Attributes:
        named: in the order of their keys.
        loading: turns, from 1, with code that loads episodes. What the code looked at is not recorded.
    """

    named: list[NamedEpisode]
    loading: list[int]

    @property
    def read(self) -> list[NamedEpisode]:
        """Return the episodes that a call or its result names."""
        return [each for each in self.named if each.turns]


def sleep_turns(record: SleepRecord) -> list[Turn]:
    """Return the turns of all agents of a sleep, in the order in which pages number them."""
    return [turn for agent in record.agents for turn in agent.turns]


def find_evidence(record: SleepRecord, known: Collection[str]) -> Evidence:
    """Return the training episodes that a sleep's record names.

    Args:
        known: keys of the episodes that were finished before the sleep; others are ignored.
    """
    prompted: set[str] = set()
    turns: dict[str, list[int]] = {}
    loading = []
    for number, turn in enumerate(sleep_turns(record), start=1):
        prompted |= _keys(each.content for each in turn.messages if each.role != "tool")
        given = [] if turn.call is None else list(_texts(turn.call.arguments))
        result = [] if turn.executed is None else [*_texts(turn.executed.result), turn.executed.error or ""]
        for key in _keys([*given, *result]):
            turns.setdefault(key, []).append(number)
        if any(_LOADING in text for text in given):
            loading.append(number)
    keys = sorted((prompted | turns.keys()) & set(known))
    return Evidence([NamedEpisode(key, key in prompted, turns.get(key, [])) for key in keys], loading)


def _keys(texts: Iterable[str]) -> set[str]:
    return {key for text in texts for key in _KEY.findall(text)}


def _texts(value: object) -> Iterable[str]:
    """Return the texts in a JSON value; keys and deeper levels of objects are ignored."""
    if isinstance(value, dict):
        return [each for each in value.values() if isinstance(each, str)]
    return [value] if isinstance(value, str) else []
