"""The cost of an uncached, a cached and an output token on an engine: `speedrunner bench tokens`.

The seconds of a unit (`token_units`) are a sum over its tokens by class and its requests, fitted by least
squares. Residuals are relative to the unit's mean over repeats, so that long prompts do not outweigh short
ones. Intervals are bootstraps of the residuals, in two parts: of the repeats, and of the means over repeats.
The second part contains what does not grow evenly with the tokens, and more repeats do not reduce it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from random import shuffle
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np
from numpy import ndarray

from speedrunner.bench.engine import open_engine
from speedrunner.bench.measurement import NOT_MEASURED, MeasuredTable, Measurement
from speedrunner.bench.token_units import EMPTY, Kind, TokenMeter, TokenUnit, plan_cells
from speedrunner.config.schema import (
    InvalidConfig,
    MeasuredLevel,
    MeasuredPrices,
    PricesConfig,
    Range,
    TokenCosts,
)
from speedrunner.plain.console import Status
from speedrunner.results.inference import TAIL
from speedrunner.results.pricing import engine_of, hardware_of
from speedrunner.runs.identity import machine, versions
from speedrunner.runs.setup import Setup

COSTS = TokenCosts.__struct_fields__

RESAMPLES, SEED = 10_000, 0
"""Of bootstraps of residuals; the same units always have the same intervals."""


class Fit(NamedTuple):
    """Costs that explain some units.

    Attributes:
        costs: seconds or joules.
        ratio: cost of a cached token divided by that of an uncached one.
    """

    costs: TokenCosts
    ratio: Range


def fit_costs(units: Sequence[TokenUnit], resource: Literal["seconds", "joules"] = "seconds") -> Fit:
    """Fit the costs of tokens to units. Costs below zero are given as zero.

    Raises `InvalidConfig` if the units do not show each cost by itself.
    """
    whole = np.array([[getattr(unit, name) for name in COSTS] for unit in units], float)
    taken = np.array([getattr(unit, resource) for unit in units], float) / whole[:, -1]
    kinds = list(dict.fromkeys((unit.context, unit.kind) for unit in units))
    place = np.array([kinds.index((unit.context, unit.kind)) for unit in units])

    def average(values: ndarray) -> ndarray:
        return np.bincount(place, values) / np.bincount(place)

    design = whole / (whole[:, -1] * average(taken)[place])[:, None]
    if np.linalg.matrix_rank(design / np.abs(design).max(axis=0).clip(1e-300)) < len(COSTS):
        raise InvalidConfig(
            "--contexts: these units do not show the cost of each kind of token; measure at least two, and"
            " longer ones"
        )
    inverse = np.linalg.pinv(design)
    relative = taken / average(taken)[place]
    costs = inverse @ relative
    residuals = relative - design @ costs
    between = average(residuals)
    within = residuals - between[place]
    draw = np.random.default_rng(SEED).choice
    free = max(len(kinds) - len(COSTS), 1)
    drawn_between = draw(between * (len(kinds) / free) ** 0.5, (RESAMPLES, len(kinds)))[:, place]
    repeats = len(units) / max(len(units) - len(kinds), 1)
    drawn_within = draw(within * repeats**0.5, (RESAMPLES, len(units)))
    draws = (costs + (drawn_between + drawn_within) @ inverse.T).clip(0).T
    drawn = dict(zip(COSTS, draws, strict=True))

    def around(value: float, draws: ndarray) -> Range:
        ends = (value, *np.quantile(draws, [TAIL, 1 - TAIL]))
        return Range(*(float(f"{max(end, 0.0):.5g}") for end in ends))

    found = {name: around(1e6 * cost, 1e6 * drawn[name]) for name, cost in zip(COSTS, costs, strict=True)}
    least = max(found["uncached"].value, 1e-9) / 1e9  # a thousandth of the cost of a token
    ratio = around(found["cached"].value / (1e9 * least), drawn["cached"] / drawn["uncached"].clip(least))
    return Fit(TokenCosts(**found), ratio)


def usable_levels(units: Sequence[TokenUnit]) -> dict[int, list[TokenUnit]]:
    """Return the usable units by requests in flight, ascending.

    These are the undisturbed units with empty prompts, and those of contexts that have all kinds. A number in
    flight has none without the former, or without two such contexts.

    Raises `InvalidConfig` if there are none.
    """
    found: dict[int, list[TokenUnit]] = {}
    for level in sorted({unit.in_flight for unit in units}):
        own = [unit for unit in units if unit.in_flight == level and not unit.disturbed]
        kinds = Counter(context for context, _ in {(unit.context, unit.kind) for unit in own})
        whole = {context for context, number in kinds.items() if number == len(get_args(Kind))}
        if len(whole) > 1 and kinds[EMPTY]:
            found[level] = [unit for unit in own if unit.context in {EMPTY, *whole}]
    if found:
        return found
    reasons = "; ".join(dict.fromkeys(unit.disturbed for unit in units if unit.disturbed))
    remedy = (
        f" (disturbed by {reasons}): rerun when nothing else does" if reasons else ": use longer --contexts"
    )
    raise InvalidConfig(
        f"fewer than two contexts have undisturbed units of all kinds, so there is no price list{remedy}"
    )


def cost_table(
    levels: Mapping[int, list[TokenUnit]], resource: Literal["seconds", "joules"], title: str
) -> MeasuredTable:
    """Return the costs by requests in flight."""
    rows = []
    for level, own in levels.items():
        found = fit_costs(own, resource)
        costs = {name: _show(getattr(found.costs, name)) for name in COSTS}
        rows.append({"in flight": level} | costs | {"cached/uncached": _show(found.ratio)})
    return MeasuredTable("", rows, title=title)


def _show(found: Range) -> str:
    value, *ends = (
        f"{each:.0f}" if each >= 100 else f"{each:.2g}" for each in msgspec.structs.astuple(found)
    )
    return f"{value} ({'-'.join(ends)})"


async def measure_units(
    setup: Setup,
    contexts: Sequence[int],
    levels: Sequence[int],
    repeats: int,
    status: Status,
) -> tuple[list[TokenUnit], list[str]]:
    """Measure units in random order. Return them, and notes. Raises `ServingError`, `InvalidConfig`."""
    async with open_engine(setup.model_config, setup.config, status) as deployment:
        cells, notes = plan_cells(deployment, contexts, levels)
        left = cells * repeats
        shuffle(left)
        units: list[TokenUnit] = []
        async with deployment.client(lambda row: None) as model:
            meter = TokenMeter(deployment, model)
            for cell in cells:
                status(f"warming up: {cell.in_flight} requests of {cell.context} tokens")
                await meter.measure(cell)  # kernels are compiled at their first use
            start = time.monotonic()
            for number, cell in enumerate(left):
                passed_s = time.monotonic() - start
                rest = f", {passed_s / number * (len(left) - number) / 60:.0f} min left" if number else ""
                what = f"{cell.in_flight} requests of {cell.context} tokens"
                status(f"{number + 1} of {len(left)}: {what}{rest}")
                units += await meter.measure(cell)
            if why := meter.why_no_joules:
                notes.append(f"Joules: {NOT_MEASURED}, {why}.")
    return units, notes


def summarize(
    setup: Setup, units: Sequence[TokenUnit], usd_per_hour: float
) -> tuple[Measurement, PricesConfig]:
    """Return the tables of costs, and the price list. Raises `InvalidConfig`."""
    used = [unit for unit in units if not unit.disturbed]
    levels = usable_levels(units)
    has_joules = all(unit.joules is not None for unit in used)
    own = MeasuredPrices(
        model=setup.model_config.name,
        hardware=hardware_of(machine(), setup.model_config.gpus),
        engine=engine_of(versions()),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        unit="GPU" if setup.model_config.gpus else "CPU",
        usd_per_hour=usd_per_hour,
        levels=[
            MeasuredLevel(
                in_flight=level,
                contexts=sorted({unit.context for unit in own} - {EMPTY}),
                seconds=fit.costs,
                joules=fit_costs(own, "joules").costs if has_joules else None,
                cached_to_uncached=fit.ratio,
            )
            for level, own in levels.items()
            for fit in [fit_costs(own)]
        ],
    )
    prices = PricesConfig(measured=own)
    found = Measurement(f"{own.model} on {own.hardware} with {own.engine}, {own.date}: {len(used)} units")
    found.facts = {"prices": prices, "units": units}
    found.tables.append(cost_table(levels, "seconds", f"{own.unit} seconds of a million"))
    if has_joules:
        found.tables.append(cost_table(levels, "joules", "Joules of a million"))
    found.notes.append("In brackets: 95% intervals.")
    if not own.level().seconds.cached.low:
        found.notes.append("The cost of a cached token may be 0: measure more --repeats.")
    if reasons := dict.fromkeys(unit.disturbed for unit in units if unit.disturbed):
        found.notes.append(f"{len(units) - len(used)} units are left out ({'; '.join(reasons)}).")
    return found, prices
