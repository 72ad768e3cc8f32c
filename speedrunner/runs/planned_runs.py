"""Runs to play, with everything that they name: what they would do, and how they share servers and jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.options import running_endpoint
from speedrunner.config.grid import AT_ONCE, GridRun, prefix_errors
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import align_columns
from speedrunner.runs.open_run import check_configuration, identify_process
from speedrunner.runs.plan import Due, Evaluate, Sleep, unfinished_steps
from speedrunner.runs.setup import SETUP_ERRORS, Setup, set_up
from speedrunner.store.run_data import load

AHEAD = 2
"""Runs are started until their episodes could fill the engine this many times: while one sleeps,
others play."""


@dataclass(frozen=True)
class PlannedRun:
    """A run to play, with everything that it names.

    Attributes:
        after: directory of another run of the list; this run starts with its newest policy.
        place: where the run is defined, for errors.
    """

    setup: Setup
    after: str | None = None
    place: str = ""

    @property
    def path(self) -> str:
        """Return its directory."""
        return self.setup.config.run.dir

    @property
    def name(self) -> str:
        """Return its name, unique in its list."""
        return Path(self.path).name

    @property
    def server(self) -> bytes:
        """Return the settings that runs on a shared server have in common."""
        config = self.setup.config
        return msgspec.json.encode([config.model, config.serving])


def set_up_runs(runs: Sequence[GridRun], *, plays_here: bool = True) -> list[PlannedRun]:
    """Create everything that the runs name.

    Args:
        plays_here: whether this machine is to play them.

    Raises the errors of `set_up` and `Setup.plan`; they name the run.
    """
    planned = []
    for run in runs:
        with prefix_errors(run.place, *SETUP_ERRORS):
            setup = set_up(run.config, plays_here=plays_here)
            setup.plan()
        planned.append(PlannedRun(setup, run.after, run.place))
    return planned


def split_by_server(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Return groups of runs with the same server, in the order in which the servers are first needed.

    A run that starts from a later group's policy is left unfinished by the first sweep.
    """
    groups: dict[bytes, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(run.server, []).append(run)
    return list(groups.values())


def list_unfinished(planned: PlannedRun) -> list[Due]:
    """Return the unfinished steps of a run. Raises if it cannot start or resume; see `open_run`."""
    path, setup = Path(planned.path), planned.setup
    if not (path / "config.yaml").exists():
        if planned.after is None:
            setup.initial_policy()  # raises if it does not exist
        return [Due(step, step.tasks) for step in setup.plan()]
    run = load(path)
    check_configuration(run, setup)
    left = unfinished_steps(setup.plan(), run, retry_faults=setup.config.run.retry_faults)
    if left:
        identify_process(run, setup, lambda line: None)
    return left


def is_unfinished(planned: PlannedRun) -> bool:
    """Return whether a run has unfinished steps. Raises if it cannot start or resume, or lacks an API key."""
    if left := list_unfinished(planned):
        running_endpoint(*planned.setup.service)  # raises if an API key is missing
    return bool(left)


def parse_part(text: str) -> tuple[int, int]:
    """Return K (the number of a part, from 1) and N (how many) of `K/N`. Raises `InvalidConfig`."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise InvalidConfig(f"--part {text}: write K/N, such as 2/8 for the second of eight")
    return number, of


def split_into_parts(
    runs: Sequence[PlannedRun], number: int | None = None, at_once: int = AT_ONCE
) -> list[list[PlannedRun]]:
    """Split runs into parts, always in the same way, no matter which runs are finished. Each part is a job.

    Runs of one part share a server, and a run is in the same part as the run from which it starts. The runs
    of a model are dealt out in turn, to mix short and long ones.

    Args:
        number: number of parts; `None`: just enough runs per part to keep a server busy.
        at_once: number of concurrent episodes on one server.

    Raises `InvalidConfig`: the number of parts is too high or too low.
    """
    servers: dict[bytes, list[list[PlannedRun]]] = {}
    for chain in _chains(runs):
        servers.setdefault(chain[0].server, []).append(chain)
    groups = list(servers.values())
    if number is None:  # each server is busy with the runs that it starts concurrently
        number = sum(min(-(-_count_in_flight(group) // (AHEAD * at_once)), len(group)) for group in groups)
    counts = _share_parts(groups, number)  # a job knows only the number of parts
    return [
        [run for chain in group[first::count] for run in chain]
        for group, count in zip(groups, counts, strict=True)
        for first in range(count)
    ]


def _chains(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Return runs, each followed by those that start from it."""
    chains: dict[str, list[PlannedRun]] = {}
    for run in runs:  # each run comes after the one from which it starts
        chain = chains.get(run.after or "", [])
        chain.append(run)
        chains[run.path] = chain
    return [chain for path, chain in chains.items() if chain[0].path == path]


def _count_in_flight(group: list[list[PlannedRun]]) -> int:
    """Return the number of episodes that the runs of a model would play concurrently."""
    return sum(run.setup.config.run.in_flight for chain in group for run in chain)


def _share_parts(groups: list[list[list[PlannedRun]]], number: int) -> list[int]:
    """Return the number of parts per server: one each; further parts go to the largest load per part."""
    most = sum(map(len, groups))
    if not len(groups) <= number <= most:
        raise InvalidConfig(
            f"{number} parts are not possible: {len(groups)} at least, one for each model, and {most}"
            " at most, because a run stays with the run that it starts from"
        )
    counts = [1] * len(groups)
    for _ in range(number - len(groups)):
        divisible = [place for place, group in enumerate(groups) if counts[place] < len(group)]
        fullest = max(divisible, key=lambda place: _count_in_flight(groups[place]) / counts[place])
        counts[fullest] += 1
    return counts


def describe_plan(runs: Iterable[PlannedRun]) -> Iterator[str]:
    """Yield a table of what is left to play, with a row for each condition and their totals, then notes.

    Requests are the maximum. Infrastructure errors are left out, after which a held-out episode is retried
    once.

    Raises:
        InvalidPlan: a run requests more tasks than there are.
        RunDirectoryError: a directory contains something else, or was played with something that has
            changed; or an initial policy does not exist.
    """
    counts: dict[str, Counter[str]] = {}
    unlimited, notes, finished = dict[str, None](), dict[str, None](), 0
    for planned in runs:
        setup, left = planned.setup, list_unfinished(planned)
        own = counts.setdefault(str(identify_condition(setup.config)), Counter())
        if not left:
            finished += 1
            continue
        episodes = sum(len(due.tasks) for due in left)
        sleeps = sum(isinstance(due.step, Sleep) for due in left)
        calls = setup.method.sleep_calls
        if sleeps and not calls:
            unlimited[setup.config.method.name] = None
        sleep_calls = setup.model_config.role("inducer").calls(calls) if calls else 0
        requests = episodes * setup.env.limits.llm_calls + sleeps * sleep_calls
        own += Counter(runs=1, episodes=episodes, sleeps=sleeps, requests=requests)
        checkpoints = sum(isinstance(step, Evaluate) for step in setup.plan())
        if not setup.method.trains and checkpoints > 1:
            note = f"{setup.config.method.name} does not learn: its only policy is evaluated again at each"
            note += f" of the {checkpoints} checkpoints, as in the paper; run.rollouts=0 evaluates it once."
            notes[note] = None
    if len(counts) > 1:
        counts["all"] = sum(counts.values(), Counter())
    shown = ("runs", "episodes", "sleeps", "requests")
    rows = [[condition, *(f"{own[name]:,}" for name in shown)] for condition, own in counts.items()]
    yield from align_columns([["", *shown[:3], "requests at most"], *rows])
    if finished:
        yield f"{finished} finished runs are not counted."
    if unlimited:
        yield f"Requests of sleeps without a limit are not counted ({', '.join(unlimited)})."
    yield from notes
