"""Each run's use of shared servers, computed without reading the other runs' records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from serving.reconciliation import Reconciliation
from speedrunner.results.engine_time import EngineUse, engine_seconds
from speedrunner.results.stored_reconciliation import with_reconciliations
from speedrunner.store.run_data import RunData


class ServerUse(msgspec.Struct, frozen=True):
    """One process's use of an engine for a run.

    Attributes:
        server: identifies the server: its model, and its address if the run names one. Otherwise the process
            that started it, which plays all runs of a sweep.
        use: when it was used.
        reconciliation: the one at the end of all runs of the server; `None` if the process was killed.
    """

    server: tuple[str, ...]
    use: EngineUse
    reconciliation: Reconciliation | None


def server_uses(run: RunData) -> Iterator[ServerUse]:
    """Yield a run's uses of engines, without hosted models. Raises `StorageError`, `InvalidConfig`."""
    url = run.settings.serving.url
    for rows, reconciliation in with_reconciliations(run):
        began = rows[0].time
        player = next((each for each in reversed(run.processes) if each.started <= began), run.processes[0])
        server = rows[0].model, player.host, url or str(player.pid)
        is_last = reconciliation is not None and not reconciliation.in_passing
        yield ServerUse(server, EngineUse.of(rows), reconciliation if is_last else None)


def server_seconds(runs: Mapping[str, Sequence[ServerUse]]) -> dict[str, float]:
    """Return each run's share of the lifetimes of its servers, in seconds.

    A run is missing if it used no local engine, or if its reconciliation shows that other runs of the server
    are not given. If a process was killed, it has no reconciliation, and the given runs share all of its
    time.
    """
    servers: dict[tuple[str, ...], list[tuple[str, ServerUse]]] = {}
    covered: dict[Reconciliation, set[str]] = {}
    for run, uses in runs.items():
        for each in uses:
            servers.setdefault(each.server, []).append((run, each))
            if each.reconciliation is not None:
                covered.setdefault(each.reconciliation, set()).add(run)
    lacking = {one for one, given in covered.items() if len(given) < one.clients}
    seconds: dict[str, float] = {}
    unknown: set[str] = set()
    for found in servers.values():
        for (run, each), share in zip(found, engine_seconds([each.use for _, each in found]), strict=True):
            seconds[run] = seconds.get(run, 0.0) + share
            if each.reconciliation in lacking:
                unknown.add(run)
    return {run: amount for run, amount in seconds.items() if run not in unknown}
