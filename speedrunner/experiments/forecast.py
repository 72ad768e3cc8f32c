"""What runs will take, from what others took: tokens, requests, engine time, disk, USD.

A run is so many training episodes, test episodes and sleeps. Of each kind the mean of those that were
measured is taken, times how many are planned; its interval is that of the sum of so many draws around a mean
that is itself estimated: a standard deviation s of m values makes s * sqrt(n + n² / m) of n planned ones, by
Student's quantile for the kind that was measured least. What was measured early does not know what learning
changes later: the interval is about chance alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, variance

import msgspec

from speedrunner.config.names import Setting, setting
from speedrunner.config.schema import Config
from speedrunner.results.forecast_records import MEASURES, Forecast, Kind, amounts_of, file_sizes
from speedrunner.results.ledger import Line, RunCosts, ledger, run_costs
from speedrunner.results.pricing import OWN, PriceBook, price_book, price_list
from speedrunner.runs.plan import Evaluate, Sleep, Step, Wake
from speedrunner.runs.setup import Setup
from speedrunner.store.data import RunData, load
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.stored_run import sleep_key


class NothingMeasured(Exception):
    """There is no run from which a forecast could be made."""


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


def _taken(run: RunData, costs: RunCosts) -> list[tuple[Kind, dict[str, float]]]:
    """What each episode and sleep of a run took; what the run took beside them is spread over all alike."""
    kinds: dict[str, Kind] = {row.episode: row.phase for row in run.episodes}
    kinds |= {sleep_key(record.sleep): "sleep" for record in run.sleeps}
    lines = {key: costs.episodes.get(key, Line()) for key in kinds}
    total = amounts_of(costs.total)
    nothing = dict.fromkeys(total, 0.0)
    amounts = {key: amounts_of(line) if line.requests else nothing for key, line in lines.items()}
    rest = {name: total[name] - sum(each.get(name, 0.0) for each in amounts.values()) for name in total}
    sizes = file_sizes(run.path)
    many = {kind: sum(other == kind for other in kinds.values()) for kind in ("train", "test", "sleep")}
    found = []
    for key, kind in kinds.items():
        own = amounts[key]
        taken = {name: own[name] + amount / len(kinds) for name, amount in rest.items() if name in own}
        found.append((kind, taken | {"bytes": sizes[kind] / many[kind] + sizes["all"] / len(kinds)}))
    return found


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
