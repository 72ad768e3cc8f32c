"""The runs of a sweep with everything that they name: which are unfinished, and which share a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from serving.options import check_keys
from speedrunner.config.grid import GridRun, prefix_errors
from speedrunner.config.schema import to_mapping
from speedrunner.runs.continuation import check_configuration
from speedrunner.runs.plan import unfinished_steps
from speedrunner.runs.run import identify_process
from speedrunner.runs.setup import SETUP_ERRORS, Setup, set_up
from speedrunner.store.run_data import load


@dataclass(frozen=True)
class Member:
    """One run of a sweep: its place in the grid, and everything that it names."""

    run: GridRun
    setup: Setup

    @property
    def path(self) -> str:
        """Return its directory."""
        return self.setup.config.run.dir

    @property
    def name(self) -> str:
        """Return its name, unique in the sweep."""
        return Path(self.path).name

    @property
    def server(self) -> list[object]:
        """Return the properties that runs on a shared server have in common."""
        sections = to_mapping(self.setup.config)
        return [sections["model"], sections["serving"]]


def members(runs: Sequence[GridRun], *, plays_here: bool = True) -> list[Member]:
    """Create everything that the runs name.

    Args:
        plays_here: whether this machine is to play them.

    Raises:
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidModelConfig, ...: see `set_up`; the error
        names the run.
    """
    found = []
    for run in runs:
        with prefix_errors(run.place, *SETUP_ERRORS):
            setup = set_up(run.config, plays_here=plays_here)
            setup.plan()
        found.append(Member(run, setup))
    return found


def split_by_server(runs: Sequence[Member]) -> list[list[Member]]:
    """Return groups of runs with the same server, in an order in which each run's start is played before it.

    Runs of two models may start from each other's policies; each model then has two groups. A model whose
    groups follow one another has a single one.

    Args:
        runs: each after the run from which it starts.
    """
    rounds: dict[str, int] = {}
    by_path = {each.path: each for each in runs}
    for each in runs:
        source = by_path.get(each.run.after or "")
        same = source is not None and source.server == each.server
        rounds[each.path] = rounds[source.path] + (not same) if source else 0
    servers: list[list[object]] = []
    for each in runs:
        if each.server not in servers:
            servers.append(each.server)

    def place(each: Member) -> tuple[int, int]:
        turn, server = rounds[each.path], servers.index(each.server)
        return turn, -server if turn % 2 else server  # begin with the server that is running

    return [list(group) for _, group in groupby(sorted(runs, key=place), key=lambda each: each.server)]


def is_unfinished(member: Member) -> bool:
    """Return whether a run has unfinished steps. Raises if it cannot start or resume; see `open_run`."""
    path, setup = Path(member.path), member.setup
    if not (path / "config.yaml").exists():
        check_keys(setup.services)
        if member.run.after is None:
            setup.initial_policy()  # raises if it does not exist
        return True
    run = load(path)
    check_configuration(run, setup)
    left = unfinished_steps(setup.plan(), run, retry_faults=setup.config.run.retry_faults)
    if left:
        check_keys(setup.services)
        identify_process(run, setup, lambda line: None)
    return bool(left)
