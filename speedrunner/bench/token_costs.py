"""What an uncached, a cached and an output token cost on an engine: `speedrunner bench tokens`.

The seconds of a unit (`token_units`) are a sum over its tokens by class and its requests, fitted by least
squares. Residuals are relative to the unit's mean over repeats, so that long prompts do not outweigh short
ones. Intervals are bootstraps of the residuals: they contain the noise of repeats and, in a fit to several
contexts, what does not grow evenly with the tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import shuffle
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from serving.usage import Prices
from speedrunner.bench.engine import open_engine
from speedrunner.bench.gpu.record import Record, StepRecord
from speedrunner.bench.measurement import NOT_MEASURED, Measurement, Table
from speedrunner.bench.token_units import EMPTY, TokenMeter, TokenUnit, plan_cells
from speedrunner.config.console import Status
from speedrunner.config.schema import InvalidConfig, MeasuredPrices, PricesConfig, Range
from speedrunner.results.inference import RESAMPLES, SEED, TAIL
from speedrunner.results.pricing import engine_of, hardware_of
from speedrunner.runs.machine import machine
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown

if TYPE_CHECKING:
    from numpy import ndarray

CLASSES = Prices.__struct_fields__


class Fit(NamedTuple):
    """Costs that explain some units.

    Attributes:
        costs: seconds or joules of a million tokens of each class, and of a million `requests`. A class
            without tokens is missing.
        ratio: cost of a cached token divided by that of an uncached one.
        residuals: by context and kind, the mean of (measured - fitted) / measured.
    """

    costs: dict[str, Range]
    ratio: Range | None
    residuals: dict[tuple[int, str], float]


def fit_costs(units: Sequence[TokenUnit], resource: Literal["seconds", "joules"] = "seconds") -> Fit:
    """Fit the costs of tokens to units. Costs below zero are given as zero."""
    import numpy as np

    whole = np.array([[getattr(unit, name) for name in (*CLASSES, "requests")] for unit in units], float)
    has_some = [bool(each) for each in np.atleast_1d(whole.any(axis=0))]
    names = [name for name, some in zip((*CLASSES, "requests"), has_some, strict=True) if some]
    taken = np.array([getattr(unit, resource) for unit in units], float) / whole[:, -1]
    strata = [(unit.context, unit.kind) for unit in units]
    members = {each: [stratum == each for stratum in strata] for each in strata}
    means = np.array([taken[members[each]].mean() for each in strata])
    design = whole[:, has_some] / (whole[:, -1] * means)[:, None]
    inverse = np.linalg.pinv(design)
    costs = inverse @ (taken / means)
    residuals = taken / means - design @ costs
    widened = residuals * (len(units) / max(len(units) - len(names), 1)) ** 0.5
    draws = np.random.default_rng(SEED).choice(widened - widened.mean(), (RESAMPLES, len(units)))
    drawn = dict(zip(names, (costs + draws @ inverse.T).clip(0).T, strict=True))

    def around(value: float, draws: ndarray) -> Range:
        ends = (value, *np.quantile(draws, [TAIL, 1 - TAIL]))
        return Range(*(float(f"{max(end, 0.0):.5g}") for end in ends))

    found = {name: around(1e6 * cost, 1e6 * drawn[name]) for name, cost in zip(names, costs, strict=True)}
    ratio = None
    if "cached" in found and found["uncached"].value:
        least = found["uncached"].value / 1e9  # a thousandth of the cost of a token
        ratio = around(
            found["cached"].value / found["uncached"].value, drawn["cached"] / drawn["uncached"].clip(least)
        )
    return Fit(found, ratio, {each: float(residuals[own].mean()) for each, own in members.items()})


def cost_table(units: Sequence[TokenUnit], resource: Literal["seconds", "joules"], title: str) -> Table:
    """Return the costs by requests in flight: of each context, and of all with the residuals of that fit."""
    rows = []
    for level in sorted({unit.in_flight for unit in units}):
        own = [unit for unit in units if unit.in_flight == level]
        whole = fit_costs(own, resource)
        fits = {
            context: fit_costs([unit for unit in own if unit.context in (EMPTY, context)], resource)
            for context in sorted({unit.context for unit in own} - {EMPTY})
        }
        for context, found in [*fits.items(), ("all", whole)]:
            off = [f"{each:+.0%}" for (place, _), each in sorted(whole.residuals.items()) if place == context]
            costs = {name: _show(found.costs.get(name)) for name in (*CLASSES, "requests")}
            more = {"cached/uncached": _show(found.ratio), "residuals": " ".join(off)}
            rows.append({"in flight": level, "context": context} | costs | more)
    return Table("", rows, title=title)


def _show(found: Range | None) -> str:
    if found is None:
        return NOT_MEASURED
    value, *ends = (
        f"{each:.0f}" if each >= 100 else f"{each:.2g}" for each in msgspec.structs.astuple(found)
    )
    return f"{value} ({'-'.join(ends)})"


async def measure_units(
    setup: Setup,
    record: Record,
    contexts: Sequence[int],
    levels: Sequence[int],
    repeats: int,
    status: Status,
    shutdown: Shutdown,
) -> tuple[list[TokenUnit], list[str]]:
    """Measure the units that a record lacks, in random order, and return all of them, and notes.

    Disturbed units are measured again by the next command. Raises `ServingError`, `InvalidConfig`,
    `StorageError`.
    """
    async with open_engine(setup.model_config, setup.config, status) as deployment:
        cells, notes = plan_cells(deployment, contexts, levels)
        names = {f"tokens-{'-'.join(map(str, cell))}-{n}": cell for cell in cells for n in range(repeats)}
        units = {name: _read_units(record, name) for name in names}
        left = [name for name, own in units.items() if not own or any(unit.disturbed for unit in own)]
        shuffle(left)
        async with deployment.client(lambda row: None, admission=False) as model:
            meter = TokenMeter(deployment, model)
            for cell in {names[name] for name in left}:
                status(f"warming up: {cell.in_flight} requests of {cell.context} tokens")
                await meter.measure(cell)  # kernels are compiled at their first use
            for number, name in enumerate(left, start=1):
                cell = names[name]
                status(f"{number} of {len(left)}: {cell.in_flight} requests of {cell.context} tokens")
                began, clock = time.time(), time.monotonic()
                with shutdown.unit(name):
                    units[name] = await meter.measure(cell)
                    measured = Measurement(name, tables=[Table("units", units[name])])
                    seconds = time.monotonic() - clock
                    record.keep(StepRecord(step=name, began=began, seconds=seconds, measured=measured))
            if why := meter.why_no_joules:
                notes.append(f"Joules: {NOT_MEASURED}, {why}.")
    return [unit for own in units.values() for unit in own], notes


def _read_units(record: Record, name: str) -> list[TokenUnit]:
    step = record.steps.get(name)
    return msgspec.convert(step.measured.tables[0].rows, list[TokenUnit]) if step and step.measured else []


def summarize(
    setup: Setup, record: Record, units: Sequence[TokenUnit], usd_per_hour: float
) -> tuple[Measurement, PricesConfig]:
    """Return the tables of costs, and the price list at the most requests in flight.

    Raises `InvalidConfig` if the units do not show the cost of each class of tokens.
    """
    used = [unit for unit in units if not unit.disturbed]
    if not used:
        raise InvalidConfig(f"every unit was disturbed ({units[0].disturbed}): rerun when nothing else runs")
    top = [unit for unit in used if unit.in_flight == max(unit.in_flight for unit in used)]
    fit = fit_costs(top)
    if fit.ratio is None:
        raise InvalidConfig("--contexts: these prompts are too short to measure cached and uncached tokens")
    has_joules = all(unit.joules is not None for unit in used)
    own = MeasuredPrices(
        model=setup.model_config.name,
        hardware=hardware_of(machine(), setup.model_config.gpus),
        engine=engine_of(record.subject.engine),
        date=time.strftime("%Y-%m-%d", time.gmtime(max(step.began for step in record.steps.values()))),
        unit="GPU" if setup.model_config.gpus else "CPU",
        in_flight=top[0].in_flight,
        usd_per_hour=usd_per_hour,
        seconds=fit.costs,
        joules=fit_costs(top, "joules").costs if has_joules else {},
        cached_to_uncached=fit.ratio,
    )
    prices = PricesConfig(**msgspec.structs.asdict(own.prices()), measured=own)
    found = Measurement(f"{own.model} on {own.hardware} with {own.engine}, {own.date}: {len(used)} units")
    found.facts = {"prices": prices, "units": units}
    found.tables.append(cost_table(used, "seconds", f"{own.unit} seconds of a million"))
    if has_joules:
        found.tables.append(cost_table(used, "joules", "Joules of a million"))
    found.notes.append(
        "In brackets: 95% intervals. Residuals of cached, output and uncached units: measured minus fitted,"
        " by the fit to all contexts."
    )
    if reasons := dict.fromkeys(unit.disturbed for unit in units if unit.disturbed):
        found.notes.append(
            f"{len(units) - len(used)} units are left out ({'; '.join(reasons)}): rerun to repeat them."
        )
    return found, prices
