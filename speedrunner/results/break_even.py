"""The break-even rollout: after how many episodes a method's training has paid off against ReAct.

A method has spent T on training up to its checkpoint. From there on, its policy plays episodes at the test
cost c, while ReAct, which trains nothing, plays them at its own test cost r. The break-even rollout is the
smallest whole number n of episodes with `T + n * c < n * r`. docs/results.md has the definition of all
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Any

import msgspec
import numpy
import pandas
from numpy.typing import ArrayLike, NDArray

from speedrunner.results.conditions import KEYS, REACT, Condition
from speedrunner.results.inference import CONFIDENCE, RESAMPLES, TAIL, as_samples, resample_seeds
from speedrunner.results.measures import SPENT
from speedrunner.results.pairing import compare_last
from speedrunner.results.writing import Table, table_of

UNPRICED = (
    "USD are empty if a model has no price, and 0 if its prices are zero, as those of open models are:"
    " speedrunner report DIR --prices NAME prices the same tokens by another list."
)
"""The end of a caption of USD."""


class BreakEven(msgspec.Struct, frozen=True):
    """The break-even rollout of a method.

    Attributes:
        seeds, pairs: numbers of seeds and of pairs of test episodes behind it.
        training: mean training spend of a seed.
        saved: mean saving per test episode; negative if an episode of the method costs more.
        break_even: `None`: never.
        low, high: interval at `CONFIDENCE`; `None`: never, or only one pair.
        never: share of resamples that never break even; `None` with one pair.
        result: `never`, `at once` (nothing was spent on training) or `later`.
    """

    seeds: int
    pairs: int
    training: float
    saved: float
    break_even: int | None
    low: int | None
    high: int | None
    never: float | None
    result: str


def find_break_even(spent: Mapping[int, float], saved: Mapping[int, Sequence[float]]) -> BreakEven | None:
    """Return the break-even rollout; `None` if no seed has both amounts.

    The means over seeds are divided, not averaged after dividing.

    Args:
        spent: training spend by seed; NaN if unknown.
        saved: by seed, the baseline's cost minus the method's of each test episode.
    """
    known = {seed: saved[seed] for seed in saved if saved[seed] and spent[seed] == spent[seed]}
    if not known:
        return None
    spends = numpy.asarray([spent[seed] for seed in known])
    training, pairs = float(spends.mean()), sum(map(len, known.values()))
    saving = float(numpy.mean([numpy.mean(own) for own in known.values()]))
    number = _whole(_count_episodes(training, saving))
    low = high = never = None
    if pairs > 1:
        drawn, savings = resample_seeds(as_samples(known))
        counts = _count_episodes(spends[drawn].mean(axis=0), savings.mean(axis=0))
        # Never between two counts.
        low, high = map(_whole, numpy.quantile(counts, [TAIL, 1 - TAIL], method="inverted_cdf"))
        never = float(numpy.isinf(counts).mean())
    result = "never" if number is None else "later" if training else "at once"
    return BreakEven(len(known), pairs, training, saving, number, low, high, never, result)


def break_even_table(conditions: Sequence[Condition], prices: str) -> Table:
    """Return a row for each condition and amount that can be compared with ReAct.

    Args:
        prices: name of the price list, for the caption.
    """
    text = (
        "Break-even rollout against ReAct: the number of episodes played at the last common checkpoint after"
        " which training spend plus these episodes' cost is below the cost of as many episodes of ReAct."
        " training: mean spend of a seed on training, induction included; saved: mean saving per test"
        f" episode, paired. Interval: {CONFIDENCE:.0%} percentiles of a bootstrap that resamples seeds, then"
        f" episodes ({RESAMPLES} resamples), which is too narrow below five seeds; an empty end, like an"
        " empty break_even, means never; never:"
        " share of resamples without a break-even. Each class of tokens breaks even separately. Rows in USD"
        f" are left out if all their amounts are zero. {UNPRICED} Prices: {prices}."
    )
    columns = [*KEYS, "against", "checkpoint", "amount", *BreakEven.__struct_fields__]
    frame = pandas.DataFrame(_compare_all(conditions), columns=columns)
    return table_of("break_even", text, frame.astype(dict.fromkeys(("break_even", "low", "high"), "Int64")))


def _compare_all(conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
    for baseline, condition, amount in product(conditions, conditions, SPENT):
        compared = compare_last(baseline, condition, amount) if _is_pair(baseline, condition) else None
        if compared is None or not compared[0]:
            continue
        point, saved = compared
        spent = {seed: float(condition.runs[seed].checkpoints[f"training_{amount}"][point]) for seed in saved}
        found = find_break_even(spent, saved)
        if found is None or (amount == "usd" and not found.training and not found.saved):
            continue
        names = dict(zip(KEYS, condition.names, strict=True))
        place = {"against": baseline.condition_name.method, "checkpoint": point, "amount": amount}
        yield {**names, **place, **msgspec.structs.asdict(found)}


def _is_pair(baseline: Condition, condition: Condition) -> bool:
    """Return whether the first is ReAct and the second a method that trained in the same environment."""
    first, second = baseline.condition_name, condition.condition_name
    return (
        baseline.first.condition_name.method == REACT != condition.first.condition_name.method
        and (first.env, first.model) == (second.env, second.model)
        and (not baseline.variant or baseline.variant == condition.variant)
        and all(run.config.run.start_from is None for run in condition.runs.values())
    )


def _count_episodes(spent: ArrayLike, saved: ArrayLike) -> NDArray[numpy.float64]:
    """Return the smallest whole n with `spent < n * saved`; infinite if there is none."""
    spent, saved = numpy.asarray(spent, dtype=float), numpy.asarray(saved, dtype=float)
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return numpy.where(saved > 0, numpy.floor(spent / saved) + 1, numpy.inf)


def _whole(count: ArrayLike) -> int | None:
    value = float(numpy.asarray(count))
    return int(value) if isfinite(value) else None
