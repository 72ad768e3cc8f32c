"""Split a sweep into parts. Each part is a job with its own server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speedrunner.config.grid import AT_ONCE
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.sweep import AHEAD
from speedrunner.runs.sweep_members import Member


def parsed_part(text: str) -> tuple[int, int]:
    """Return K (the number of a part, from 1) and N (how many) of `K/N`. Raises `InvalidConfig`."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise InvalidConfig(f"--part {text}: write K/N, such as 2/8 for the second of eight")
    return number, of


def parts(runs: Sequence[Member], number: int | None = None, at_once: int = AT_ONCE) -> list[list[Member]]:
    """Split runs into parts, always in the same way, no matter which runs are finished.

    Runs of one part share a server, and a run is in the same part as the run from which it starts. The runs
    of a model are dealt out in turn, to mix short and long ones.

    Args:
        number: number of parts; `None`: just enough runs per part to keep a server busy.
        at_once: number of concurrent episodes on one server.

    Raises `InvalidConfig`: the number of parts is too high or too low.
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
    counts = _share_parts(servers, number)  # a job knows only the number of parts
    return [
        [member for chain in group[first::count] for member in chain]
        for group, count in zip(servers, counts, strict=True)
        for first in range(count)
    ]


def _chains(runs: Sequence[Member]) -> list[list[Member]]:
    """Return runs, each followed by those that start from it."""
    chains: dict[str, list[Member]] = {}
    for each in runs:  # each run comes after the one from which it starts
        chain = chains.get(each.run.after or "", [])
        chain.append(each)
        chains[each.path] = chain
    return [chain for path, chain in chains.items() if chain[0].path == path]


def _busy(group: list[list[Member]], at_once: int) -> int:
    """Return how many servers the runs of a model keep busy, each with the runs that it starts
    concurrently."""
    return min(-(-_count_in_flight(group) // (AHEAD * at_once)), len(group))


def _count_in_flight(group: list[list[Member]]) -> int:
    """Return the number of episodes that the runs of a model would play concurrently."""
    return sum(member.setup.config.run.in_flight for chain in group for member in chain)


def _share_parts(servers: list[list[list[Member]]], number: int) -> list[int]:
    """Return the number of parts per server: one each; further parts go to the largest load per part."""
    most = sum(map(len, servers))
    if not len(servers) <= number <= most:
        raise InvalidConfig(
            f"{number} parts are not possible: {len(servers)} at least, one for each model, and {most}"
            " at most, because a run stays with the run that it starts from"
        )
    counts = [1] * len(servers)
    for _ in range(number - len(servers)):
        open_ = [place for place, group in enumerate(servers) if counts[place] < len(group)]
        fullest = max(open_, key=lambda place: _count_in_flight(servers[place]) / counts[place])
        counts[fullest] += 1
    return counts
