"""A sweep in parts, each of which is a job with a server of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.sweep import AHEAD, AT_ONCE, Member


class Part(NamedTuple):
    """The `number`-th of `of` parts; both count from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parsed_part(text: str) -> Part:
    """Read `K/N`. Raises `InvalidConfig`."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    part = Part(int(found[1]), int(found[2])) if found else Part(0, 0)
    if not 1 <= part.number <= part.of:
        raise InvalidConfig(f"--part {text} is no part: write K/N, such as 2/8 for the second of eight")
    return part


def parts(runs: Sequence[Member], number: int | None = None, at_once: int = AT_ONCE) -> list[list[Member]]:
    """Deal runs out, the same ones into so many parts always in the same way, whatever of them is finished.

    Runs of one part share a server, and a run is with the one that it begins with. Those of a model are dealt
    out in turn, so that short ones and long ones mix.

    Args:
        number: of parts; `None` for so many that the runs of each just keep a server busy.
        at_once: episodes at the same time on one server.

    Raises:
        InvalidConfig: there can be no so many parts, or no so few.
    """
    servers: list[list[list[Member]]] = []
    for chain in _chains(runs):
        server = chain[0].server
        group = next((each for each in servers if each[0][0].server == server), None)
        if group is None:
            servers.append([chain])
        else:
            group.append(chain)
    if number is None:
        number = sum(_busy(group, at_once) for group in servers)
    counts = _shared(servers, number)  # by their number alone, which is all that a job knows of the others
    return [
        [member for chain in group[first::count] for member in chain]
        for group, count in zip(servers, counts, strict=True)
        for first in range(count)
    ]


def _chains(runs: Sequence[Member]) -> list[list[Member]]:
    """Runs, with those that begin with them behind them."""
    chains: dict[str, list[Member]] = {}
    for each in runs:  # each after that with which it begins
        chain = chains.get(each.run.after or "", [])
        chain.append(each)
        chains[each.path] = chain
    return [chain for path, chain in chains.items() if chain[0].path == path]


def _busy(group: list[list[Member]], at_once: int) -> int:
    """How many servers the runs of a model keep busy, each with as many as it begins side by side."""
    return min(-(-_wanted(group) // (AHEAD * at_once)), len(group))


def _wanted(group: list[list[Member]]) -> int:
    """Episodes that the runs of a model would play at the same time."""
    return sum(member.setup.config.run.in_flight for chain in group for member in chain)


def _shared(servers: list[list[list[Member]]], number: int) -> list[int]:
    """Parts of each server's runs: one each, and every other where one has most to play."""
    most = sum(map(len, servers))
    if not len(servers) <= number <= most:
        raise InvalidConfig(
            f"{number} parts cannot be made: {len(servers)} at least, one for each model, and {most} at most,"
            " as runs that begin with each other stay together"
        )
    counts = [1] * len(servers)
    for _ in range(number - len(servers)):
        open_ = [place for place, group in enumerate(servers) if counts[place] < len(group)]
        fullest = max(open_, key=lambda place: _wanted(servers[place]) / counts[place])
        counts[fullest] += 1
    return counts
