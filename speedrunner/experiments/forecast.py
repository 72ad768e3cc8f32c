"""What runs will take, from what others took: tokens, requests, engine time, disk, USD.

A run is so many training episodes, test episodes and sleeps. Of each kind the mean of those that were
measured is taken, times how many are planned; its interval is that of the sum of so many draws around a mean
that is itself estimated: a standard deviation s of m values makes s * sqrt(n + n² / m) of n planned ones, by
Student's quantile for the kind that was measured least. What was measured early does not know what learning
changes later: the interval is about chance alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Literal

import msgspec

from speedrunner.config.names import Setting, setting
from speedrunner.config.schema import Config
from speedrunner.experiments.damage import readable
from speedrunner.experiments.plans import runs_below
from speedrunner.results.ledger import Line, RunCosts, ledger, run_costs
from speedrunner.results.pricing import OWN, PriceBook, price_book, price_list
from speedrunner.runs.plan import Evaluate, Sleep, Step, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store import files
from speedrunner.store.data import RunData, load
from speedrunner.store.records import FORMAT
from speedrunner.store.stored_run import sleep_key

CONFIDENCE = 0.9

Kind = Literal["train", "test", "sleep"]

MEASURES = ("requests", "uncached", "cached", "output", "engine_s", "usd", "bytes")
"""What is added up: requests, tokens by class, seconds of engines of ours, USD, bytes on the disk. What was
wasted is in it: it is taken, too."""

FORECASTS = "forecasts.jsonl"
"""The file in the folder of the runs."""


class NothingMeasured(Exception):
    """There is no run from which a forecast could be made."""


class Forecast(msgspec.Struct, frozen=True):
    """What one run is expected to take.

    Attributes:
        dir: the run's directory.
        setting: how its setting is called.
        counts: its training episodes, test episodes and sleeps.
        files: on the disk.
        mean, sd: of each measure, the expected amount and the standard deviation around it; a measure that
            is not known (no price, no engine of ours) is missing.
        measured: how many of each kind it is made from.
        prices: what the price list is called.
        made: when, in Unix seconds.
        source: the setting that was measured, where it is not its own.
    """

    dir: str
    setting: Setting
    counts: dict[Kind, int]
    files: int
    mean: dict[str, float]
    sd: dict[str, float]
    measured: dict[Kind, int]
    prices: str
    made: float
    source: Setting | None = None
    format: int = FORMAT


class Sum(msgspec.Struct, frozen=True):
    """Several runs' amount of one measure, with the interval that holds it with `CONFIDENCE`; none where a
    kind was measured only once."""

    mean: float
    low: float | None
    high: float | None


Basis = dict[Kind, list[dict[str, float]]]
"""What each measured episode and sleep took."""

Budgets = str
"""What bounds an episode or a sleep, beside its environment: only those of the same budgets are alike."""

Known = Mapping[tuple[Setting, Budgets], Basis]
"""What was measured, by setting and budgets."""


def measured(folders: Iterable[Path], prices: str | None = None) -> tuple[Known, list[str]]:
    """What the runs in some folders took, and what is wrong with those that are damaged.

    Args:
        prices: a file of `configs/prices/` for all of them; `None`: each run's own list.

    Raises:
        StorageError: there is no such folder, or no run of some can be read.
        InvalidConfig: there is no such price list.
    """
    if prices is not None:
        price_list(prices)

    def read(path: Path) -> tuple[RunData, PriceBook] | None:
        run = load(path)
        begun = bool(run.settings and run.processes and run.episodes and ledger(run))
        _ = run.sleeps
        return (run, price_book(run, prices)) if begun else None

    paths = dict.fromkeys(run for folder in folders for run in runs_below(folder))
    loaded, problems = readable(paths, read)
    runs, books = [each[0] for each in loaded if each], [each[1] for each in loaded if each]
    found: dict[tuple[Setting, Budgets], Basis] = {}
    for run, costs in zip(runs, run_costs(runs, books), strict=True):
        config = run.settings
        key = setting(config), budgets_of(config)
        basis = found.setdefault(key, {"train": [], "test": [], "sleep": []})
        for kind, taken in _taken(run, costs):
            basis[kind].append(taken)
    return found, problems


def forecast(setups: Sequence[Setup], known: Known, prices: str = OWN) -> list[Forecast]:
    """What planned runs will take; those of which nothing alike was measured are left out.

    A kind that a setting has not been measured in is taken from another variant of its method in the same
    environment with the same model.

    Args:
        prices: what the price list of `known` is called.

    Raises:
        NothingMeasured: that is so of all of them.
    """
    found = [each for each in (_forecast(setup, known, prices) for setup in setups) if each is not None]
    if not found:
        there = dict.fromkeys(" ".join(msgspec.structs.astuple(each)) for each, _ in known)
        raise NothingMeasured(
            f"nothing like any of these {len(setups)} runs was measured, with the same setting and the same"
            f" budgets of an episode (measured are: {', '.join(there) or 'none'}): play a few of their"
            " episodes first, such as with scale=pilot run.seed=0, and name the folder with --from"
        )
    return found


def total(forecasts: Sequence[Forecast], measure: str) -> Sum | None:
    """Their sum of one measure; `None` where it is not known of all. Errors of one setting go together."""
    if not forecasts or any(measure not in each.mean for each in forecasts):
        return None
    mean = sum(each.mean[measure] for each in forecasts)
    deviations: dict[Setting, float] = {}
    for each in forecasts:
        deviations[each.setting] = deviations.get(each.setting, 0.0) + each.sd[measure]
    freedom = min(min(each.measured.values()) for each in forecasts) - 1
    if freedom < 1:
        return Sum(mean, None, None)
    from scipy import stats  # type: ignore[import-untyped]

    half = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * sqrt(sum(sd**2 for sd in deviations.values()))
    return Sum(mean, float(max(mean - half, 0.0)), float(mean + half))


def keep(forecasts: Sequence[Forecast]) -> None:
    """Note forecasts beside their runs, to be held against what these take. Raises `StorageError`."""
    for each in forecasts:
        folder = Path(each.dir).parent
        with files.explained(folder, "made"):
            folder.mkdir(parents=True, exist_ok=True)
        inside = msgspec.structs.replace(each, dir=Path(each.dir).name)
        files.append_record(folder / FORECASTS, inside, durable=False)


def kept(folder: Path) -> list[Forecast]:
    """The forecasts of a folder's runs, oldest first, with their names as `dir`. Raises `StorageError`."""
    return files.read_records(folder / FORECASTS, Forecast)


def truth(run: RunData, costs: RunCosts) -> dict[str, float]:
    """What a run has taken, by measure, as far as it is known. Raises `StorageError`."""
    taken = _amounts(costs.total)
    if costs.unpriced:
        taken.pop("usd", None)
    return taken | {"bytes": sum(_sizes(run.path).values())}


def _taken(run: RunData, costs: RunCosts) -> list[tuple[Kind, dict[str, float]]]:
    """What each episode and sleep of a run took; what the run took beside them is spread over all alike."""
    kinds: dict[str, Kind] = {row.episode: row.phase for row in run.episodes}
    kinds |= {sleep_key(record.sleep): "sleep" for record in run.sleeps}
    lines = {key: costs.episodes.get(key, Line()) for key in kinds}
    total = _amounts(costs.total)
    nothing = dict.fromkeys(total, 0.0)
    amounts = {key: _amounts(line) if line.requests else nothing for key, line in lines.items()}
    rest = {name: total[name] - sum(each.get(name, 0.0) for each in amounts.values()) for name in total}
    sizes = _sizes(run.path)
    many = {kind: sum(other == kind for other in kinds.values()) for kind in ("train", "test", "sleep")}
    found = []
    for key, kind in kinds.items():
        own = amounts[key]
        taken = {name: own[name] + amount / len(kinds) for name, amount in rest.items() if name in own}
        found.append((kind, taken | {"bytes": sizes[kind] / many[kind] + sizes["all"] / len(kinds)}))
    return found


def _amounts(line: Line) -> dict[str, float]:
    tokens = line.tokens
    known = {"engine_s": line.engine_s, "usd": line.usd}
    amounts = {
        "requests": float(line.requests),
        "uncached": tokens.computed,
        "cached": tokens.cached,
        "output": tokens.reasoning + tokens.action,
    }
    return amounts | {name: amount for name, amount in known.items() if amount is not None}


def _sizes(path: Path) -> dict[str, float]:
    """Bytes of a run's files, by what they grow with."""
    folders = {"trajectories": "train", "evaluations": "test", "sleeps": "sleep", "policies": "sleep"}
    sizes = {"train": 0.0, "test": 0.0, "sleep": 0.0, "all": 0.0}
    for place, _, names in os.walk(path):  # which leaves out what it cannot read
        parts = Path(place).relative_to(path).parts
        for name in names:
            with suppress(OSError):  # it was there for a moment, or its path is too long
                found = Path(place, name).lstat()
                if stat.S_ISREG(found.st_mode):
                    sizes[folders.get(parts[0] if parts else "", "all")] += found.st_size
    return sizes


def _forecast(setup: Setup, known: Known, prices: str) -> Forecast | None:
    own, budgets, plan = setting(setup.config), budgets_of(setup.config), setup.plan()
    counts = _counts(plan)
    alike = {each: basis for (each, other), basis in known.items() if other == budgets}
    sources = {kind: _source(own, kind, alike) for kind, count in counts.items() if count}
    if any(source is None for source in sources.values()):
        return None
    taken = {kind: alike[source][kind] for kind, source in sources.items() if source is not None}
    mean: dict[str, float] = {}
    sd: dict[str, float] = {}
    for name in MEASURES:
        if all(name in each for kind in taken.values() for each in kind):
            values = {kind: [each[name] for each in rows] for kind, rows in taken.items()}
            mean[name] = sum(counts[kind] * fmean(of_kind) for kind, of_kind in values.items())
            sd[name] = sqrt(sum(_variance(counts[kind], of_kind) for kind, of_kind in values.items()))
    others = {source for source in sources.values() if source != own}
    return Forecast(
        dir=setup.config.run.dir,
        setting=own,
        counts=counts,
        files=_files(plan),
        mean=mean,
        sd=sd,
        measured={kind: len(rows) for kind, rows in taken.items()},
        prices=prices,
        made=time.time(),
        source=min(others) if others else None,  # type: ignore[type-var]
    )


def _variance(planned: int, values: Sequence[float]) -> float:
    """Of a sum of so many values like these, whose mean is known from them alone."""
    return variance(values) * (planned + planned**2 / len(values)) if len(values) > 1 else 0.0


def budgets_of(config: Config) -> Budgets:
    """The budgets of a run's episodes and sleeps."""
    run, model = config.run, config.model
    bounds = run.max_actions, run.reply_chars, run.wall_clock, run.wall_clock_s, model.actor, model.inducer
    return msgspec.json.encode(bounds, order="sorted").decode()


def _source(own: Setting, kind: Kind, known: Mapping[Setting, Basis]) -> Setting | None:
    """The setting from which a kind is taken: its own, or another variant of the method."""
    there = [each for each, basis in known.items() if basis[kind]]
    variants = (
        each
        for each in there
        if (each.env, each.model) == (own.env, own.model)
        and each.method.partition("-")[0] == own.method.partition("-")[0]
    )
    return own if own in there else next(variants, None)


def _counts(plan: Sequence[Step]) -> dict[Kind, int]:
    return {
        "train": sum(len(step.tasks) for step in plan if isinstance(step, Wake)),
        "test": sum(len(step.tasks) for step in plan if isinstance(step, Evaluate)),
        "sleep": sum(isinstance(step, Sleep) for step in plan),
    }


def _files(plan: Sequence[Step]) -> int:
    """A file for each step, four for each policy, and those that every run has once."""
    sleeps = sum(isinstance(step, Sleep) for step in plan)
    return len(plan) + 4 * (sleeps + 1) + len(ONCE)


ONCE = (
    *("config.yaml", "processes.jsonl", "episodes.jsonl", "requests.jsonl", "accounts.jsonl", "state.json"),
    "hosts.log",
)
"""Files of a run that do not become more; the server's log lies beside the runs."""
