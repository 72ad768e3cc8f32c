"""Ledgers of a few rows, and runs that consist of them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from serving.meter import LedgerRow, Status
from serving.usage import Prices, Usage
from speedrunner.config.schema import MeasuredLevel, MeasuredPrices, PricesConfig, Range, TokenCosts
from speedrunner.plain.plain_yaml import write_yaml
from speedrunner.results.pricing import PriceBook
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import Policy, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import trajectory


def measured_list(folder: Path, **changes: object) -> Path:
    """A file of prices of 0.2, 0.01 and 2 USD (4 for a million requests, 0.5 for a million output tokens and
    thousand of context) at 1 in flight, with half and twice that at the ends. At 8, output is 1."""
    seconds = TokenCosts(**{name: Range(usd * 3600, usd * 1800, usd * 7200) for name, usd in COSTS.items()})
    about: dict[str, Any] = {"model": "tiny-random", "hardware": "a processor", "engine": "no engine"}
    about |= {"date": "2026-11-27", "unit": "CPU", "usd_per_hour": 1.0}
    one = MeasuredLevel(1, [512, 2048], seconds, Range(0.05, 0.04, 0.06))
    eight = replace(one, in_flight=8, seconds=replace(seconds, output=Range(3600, 3600, 3600)))
    measured = MeasuredPrices(**{**about, "levels": [one, eight], **changes})
    file = folder / "measured-here.yaml"
    file.write_text(write_yaml(to_builtins(PricesConfig(measured=measured))))
    return file


REQUESTS = count()
"""Numbers of the rows: no two of one ledger are the same request."""

COSTS = {"uncached": 0.2, "cached": 0.01, "output": 2.0, "requests": 4.0, "attention": 0.5}

LIST = Prices(uncached=1.0, cached=0.1, output=10.0)
BY_TOKEN = PriceBook("a list", LIST)


def row(
    time: float,
    usage: Usage | None,
    role: str = "actor",
    *,
    status: Status = "ok",
    model: str = "m",
    at_most: Usage | None = None,
    cacheable: int | None = None,
    **labels: str,
) -> LedgerRow:
    """A request of one second that ended at `time`."""
    return LedgerRow(
        request=f"r{next(REQUESTS)}", retry=0, time=time, labels={"role": role, **labels}, model=model,
        status=status, wasted=status in ("aborted", "failed"), usage=usage, seconds=1.0, at_most=at_most,
        cacheable=cacheable,
    )  # fmt: skip


ROWS = [
    row(1.0, Usage(1, 0, 1), "readiness"),
    row(2.0, Usage(1000, 900, 50, 20), phase="train", policy="0"),
    row(3.0, None, status="aborted", at_most=Usage(2000, 0, 500), phase="train", policy="0"),
    row(5.0, Usage(500, 400, 10, 0), "inducer", phase="sleep", policy="0"),
    row(6.0, Usage(300, 0, 5, 0), status="aborted", phase="test", policy="1"),
]


def stored(path: Path, rows: list[LedgerRow]) -> RunData:
    """A run on the disk that has a ledger."""
    with RunDirectory.open_for_writing(path) as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
        for each in rows:
            run.append_request(each)
    return load(path)


def play(run: RunDirectory, episode: str, *usages: Usage, policy: int = 0, **changes: object) -> None:
    """Record an episode of one request for each usage."""
    phase, *point, number = episode.split("/")
    for usage in usages:
        run.append_request(row(1.0, usage, phase=phase, policy=str(policy), episode=episode, attempt="1"))
    turns = [Turn(messages=[], text="", usage=usage, seconds=0.0) for usage in usages]
    played = trajectory(episode, policy=policy, turns=turns, **changes)
    if phase == "train":
        run.append_trajectory("train", policy, played)
        run.append_episode(summarize_episode(played, "train", int(number)))
    else:
        run.append_trajectory("test", int(point[0]), played)
        run.append_episode(summarize_episode(played, "test", int(point[0])))
