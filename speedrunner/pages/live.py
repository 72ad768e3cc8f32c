"""The page of a sweep while it runs: what its processes have written down until now.

Rates come from the last rows of the ledgers, so they are those that clients saw. An engine's metrics are
behind a socket or key that only the playing process has. Of them this page has what is written down: the
engine's log, and the counters that the playing process saves every few seconds (`reading.json`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.config.console import describe_seconds
from speedrunner.experiments.status import RunStatus, State, Status, status
from speedrunner.pages.engine_logs import list_engine_states
from speedrunner.pages.number_texts import dollars
from speedrunner.pages.pages import Context
from speedrunner.pages.tiles import Tile
from speedrunner.runs.time_left import time_left
from speedrunner.store.discovery import DAMAGED
from speedrunner.store.json_lines import read_tail
from speedrunner.store.run_data import RunData, load

WINDOW_S = 300.0
"""Seconds of the past over which rates are taken."""

TAIL_BYTES = 512 * 1024
"""Bytes at the end of a ledger that are read: about 1,000 requests."""

FAULTS = 20
"""Maximum number of faults, and of different request errors, which are listed."""

REASON_CHARS = 300
"""Maximum characters of an error."""

BADGES = {"finished": "good", "running": "plain", "stopped": "bad", "waiting": "plain", "unknown": "bad"}
ORDER: tuple[State, ...] = ("running", "stopped", "unknown", "waiting", "finished")


class Rates(msgspec.Struct):
    """Requests of one model in the window.

    Attributes:
        seconds: length of the window.
        request_s: sum of the seconds of all requests.
        failed: requests without an answer.
    """

    seconds: float = 0.0
    requests: int = 0
    request_s: float = 0.0
    failed: int = 0
    usage: Usage = Usage()

    @property
    def output(self) -> float:
        """Return output tokens per second."""
        return self.usage.completion / self.seconds if self.seconds else 0.0

    @property
    def prompt(self) -> float:
        """Return computed prompt tokens per second."""
        return self.usage.uncached / self.seconds if self.seconds else 0.0

    @property
    def cached(self) -> float | None:
        """Return the share of prompt tokens from the cache."""
        return self.usage.cached / self.usage.prompt if self.usage.prompt else None

    @property
    def in_flight(self) -> float:
        """Return the mean number of requests in flight that have ended since."""
        return self.request_s / self.seconds if self.seconds else 0.0

    @property
    def wait(self) -> float | None:
        """Return the mean seconds of a request."""
        return self.request_s / self.requests if self.requests else None

    def add(self, other: Rates) -> None:
        """Add the requests of another client of the same server."""
        self.seconds = max(self.seconds, other.seconds)
        self.requests += other.requests
        self.request_s += other.request_s
        self.failed += other.failed
        self.usage += other.usage


def live_page(folder: Path, found: Mapping[str, Path]) -> Context:
    """Return runs, servers and faults of a folder. Raises `StorageError` if the folder does not exist.

    Args:
        found: runs by their names in addresses.
    """
    now = time.time()
    everything = status(folder)
    slugs = {path.resolve(): slug for slug, path in found.items()}
    runs, servers, faults = [], dict[tuple[str, ...], Context](), list[Context]()
    errors = Counter[str]()
    for each in sorted(everything.runs, key=lambda run: (ORDER.index(run.state), run.dir)):
        slug = slugs.get(Path(each.dir).resolve(), "")
        row: Context = {"status": each, "slug": slug, "badge": BADGES[each.state], "rates": Rates()}
        row |= {"usd": None, "left": None, "problem": ""}
        runs.append(row)
        if each.state in ("waiting", "unknown") and not each.owner:
            continue
        try:
            _describe(row, load(each.dir, skip_broken=True), now, servers, errors, faults)
        except DAMAGED as error:
            row["problem"] = " ".join(str(error).split())
    running = [row for row in runs if row["status"].state == "running"]
    return {
        "folder": str(folder),
        "runs": runs,
        "servers": [servers[key] for key in sorted(servers)],
        "engines": list_engine_states(Path(row["status"].dir) for row in running),
        "faults": faults[:FAULTS],
        "more_faults": max(len(faults) - FAULTS, 0),
        "errors": errors.most_common(FAULTS),
        "problem": everything.problem,
        "sweeps": everything.sweeps,
        "tiles": _tiles(everything, runs, servers),
        "window": round(WINDOW_S / 60),
        "growing": 4 if running else 30,
    }


def _describe(
    row: Context,
    run: RunData,
    now: float,
    servers: dict[tuple[str, ...], Context],
    errors: Counter[str],
    faults: list[Context],
) -> None:
    """Add what a run's files say to its row, its servers, and the lists of errors and faults."""
    found: RunStatus = row["status"]
    rows = run.rows
    row["usd"] = _cost(run)
    for fault in [each for each in rows if each.termination.is_fault][-FAULTS:]:
        faults.append({"slug": row["slug"], "row": fault, "reason": _reason(run, fault)})
    if not found.owner:
        return
    tail = read_tail(run.files.requests, LedgerRow, TAIL_BYTES)
    is_cut = bool(tail) and run.files.requests.stat().st_size > TAIL_BYTES
    for model, rates in _rates(tail, now, is_cut=is_cut).items():
        process = run.processes[-1]
        key = model, process.host, run.settings.serving.url or f"process {process.pid}"
        server = servers.setdefault(
            key, {"model": model, "host": process.host, "rates": Rates(), "runs": 0, "reading": None}
        )
        server["rates"].add(rates)
        server["runs"] += 1
        server["reading"] = server["reading"] or next(
            (each for each in reversed(run.reading) if each.model == model), None
        )
        row["rates"].add(rates)
    errors.update(each.error[:REASON_CHARS] for each in tail if each.error and now - each.time <= WINDOW_S)
    row["left"] = _time_left(run, found, row["rates"])


def _rates(tail: list[LedgerRow], now: float, *, is_cut: bool) -> dict[str, Rates]:
    """Return the rates of the last `WINDOW_S` seconds, by model. The window is shorter if the rows are.

    Args:
        is_cut: whether there are rows before the tail. Then the window begins when its first request ended,
            since others that ran at that time may be missing.
    """
    recent = [each for each in tail if now - each.time <= WINDOW_S]
    found: dict[str, Rates] = {}
    if not recent:
        return found
    first = min(each.time - each.seconds for each in recent)
    if is_cut and len(recent) == len(tail):
        first = tail[0].time
    length = max(min(now - first, WINDOW_S), 1.0)
    for each in recent:
        own = found.setdefault(each.model, Rates(length))
        own.requests += 1
        own.request_s += each.seconds
        own.failed += each.usage is None
        own.usage += each.usage or Usage()
    return found


def _cost(run: RunData) -> float | None:
    """Return the USD of the finished episodes at the actor's prices; `None` if these are unknown."""
    process = next(reversed(run.processes), None)
    prices = process and process.prices.get(process.actor.name)
    return None if not prices else sum(prices.cost(row.usage) for row in run.rows)


def _time_left(run: RunData, found: RunStatus, rates: Rates) -> float | None:
    """Return the estimated seconds to the end, from the requests of the finished episodes and the current
    rate of requests, and from the finished sleeps; `None` if there is too little to tell."""
    if found.of is None or not rates.requests:
        return None
    return time_left(
        max(found.of - found.episodes, 0),
        [row.llm_calls for row in run.rows],
        rates.seconds / rates.requests,
        max((run.training_end or run.settings.run).sleeps - len(run.sleeps), 0),
        [each.seconds for each in run.sleeps],
    )


def _reason(run: RunData, fault: Any) -> str:
    """Return why an episode ended by an infrastructure error, as its record says."""
    try:
        played = run.find(fault)
    except DAMAGED as error:
        return " ".join(str(error).split())
    return played.fault[:REASON_CHARS] if played else "unknown cause"


def _tiles(found: Status, runs: list[Context], servers: Mapping[tuple[str, ...], Context]) -> list[Tile]:
    states = Counter(run.state for run in found.runs)
    total = Rates()
    for server in servers.values():
        total.add(server["rates"])
    left = [row["left"] for row in runs if row["left"] is not None]
    planned = [run.of for run in found.runs]
    known = sum(each for each in planned if each is not None)
    played = sum(run.episodes for run in found.runs)
    usd = [row["usd"] for row in runs if row["usd"] is not None]
    unknown = sum(each is None for each in planned)
    tiles = [
        (
            "runs",
            f"{states['finished']} of {len(found.runs)}",
            ", ".join(f"{states[each]} {each}" for each in ORDER if states[each]),
        ),
        (
            "episodes",
            f"{played:,} of {known:,}",
            f"{unknown} runs without a known plan are not counted" if unknown else "of all started runs",
        ),
        ("time left", describe_seconds(max(left)) if left else "–", "of the slowest run that is running"),
        ("output tokens/s", f"{total.output:,.0f}" if total.requests else "–", f"{total.requests} requests"),
        (
            "cached share",
            "–" if total.cached is None else f"{total.cached:.0%}",
            "of the prompt tokens in the window",
        ),
        (
            "cost",
            dollars(sum(usd)) if usd else "–",
            "finished episodes at the actor's prices",
        ),
    ]
    return [Tile(*each) for each in tiles]
