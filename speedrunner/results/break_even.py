"""The break-even rollout: after how many episodes a method's training has paid off against ReAct.

**Definition.** A method has spent T on training up to its checkpoint (`training_NAME` of
`speedrunner.results.means`: all roles, sleeps included). From there on, its policy plays episodes at
the checkpoint's test cost c, while ReAct, which trains nothing, plays them at its own test cost r. The
break-even rollout is the smallest whole number n of episodes with `T + n * c < n * r`, that is
`floor(T / (r - c)) + 1`. The scores are not part of it.

- **Amount**: USD, or one class of tokens. Each class has a separate row, since tokens of different classes
  cannot be added without prices.
- **Checkpoint**: the last one that a seed of the method and of ReAct has finished, as in the tests. There is
  no row at checkpoint 0, nor for a run that starts from another run, which paid for earlier training.
- **Seeds**: T is the mean over the seeds that both have, `r - c` the mean over these seeds of the seeds' mean
  differences, paired by test episode. The division comes last: it is not the mean of the seeds' break-evens.
- **Interval**: each resample draws seeds with their T, then episodes within each drawn seed
  (`inference.resample_seeds`), and divides. Low and high are percentiles of these numbers.
- **Never**: if `r - c` is not positive, no n fulfils this. The cell is empty and `result` is `never`. An end
  of the interval that is never reached is empty too; `never` is the share of resamples without an n.
- **At once**: `result` is `at once` if nothing was spent on training, so that n is 1.
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
from speedrunner.results.inference import CONFIDENCE, RESAMPLES, as_samples, resample_seeds
from speedrunner.results.measures import SPENT
from speedrunner.results.pairing import compare_last
from speedrunner.results.writing import Table, table_of

UNPRICED = (
    "USD are empty if a model has no price, and 0 if its prices are zero, as those of open models are:"
    " speedrunner report DIR --prices NAME prices the same tokens by another list."
)
"""The end of a caption of USD."""


class BreakEven(msgspec.Struct, frozen=True):
    """The break-even rollout of a method; see the module for its definition.

    Attributes:
        seeds: number of seeds behind it.
        pairs: number of pairs of test episodes.
        training: mean training spend of a seed.
        saved: mean saving per test episode; negative if an episode of the method costs more.
        break_even: `None`: never.
        low, high: interval at `CONFIDENCE`; `None`: never, or only one pair.
        never: share of resamples that never break even; `None` with one pair.
    """

    seeds: int
    pairs: int
    training: float
    saved: float
    break_even: int | None
    low: int | None = None
    high: int | None = None
    never: float | None = None

    @property
    def result(self) -> str:
        """Return `never`, `at once` or `later`."""
        if self.break_even is None:
            return "never"
        return "later" if self.training else "at once"


def find_break_even(spent: Mapping[int, float], saved: Mapping[int, Sequence[float]]) -> BreakEven | None:
    """Return the break-even rollout; `None` if no seed has both amounts.

    Args:
        spent: training spend by seed; NaN if unknown.
        saved: by seed, the baseline's cost minus the method's of each test episode.
    """
    known = {seed: saved[seed] for seed in saved if saved[seed] and spent[seed] == spent[seed]}
    if not known:
        return None
    spends = numpy.asarray([spent[seed] for seed in known])
    training = float(spends.mean())
    saving = float(numpy.mean([numpy.mean(own) for own in known.values()]))
    pairs = sum(map(len, known.values()))
    found = BreakEven(len(known), pairs, training, saving, _whole(_count_episodes(training, saving)))
    if pairs < 2:
        return found
    drawn, savings = resample_seeds(as_samples(known))
    counts = _count_episodes(spends[drawn].mean(axis=0), savings.mean(axis=0))
    tail = (1 - CONFIDENCE) / 2
    low, high = numpy.quantile(counts, [tail, 1 - tail], method="inverted_cdf")  # never between two counts
    never = float(numpy.isinf(counts).mean())
    return msgspec.structs.replace(found, low=_whole(low), high=_whole(high), never=never)


def break_even_table(conditions: Sequence[Condition], prices: str) -> Table:
    """Return a row for each condition and amount that can be compared with ReAct.

    Args:
        prices: name of the price list, for the caption.
    """
    columns = [*KEYS, "against", "checkpoint", "amount"]
    columns += ["seeds", "pairs", "training", "saved", "break_even", "low", "high", "never", "result"]
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
    frame = pandas.DataFrame(_compare_all(conditions), columns=columns)
    whole = dict.fromkeys(("break_even", "low", "high"), "Int64")
    return table_of("break_even", text, frame.astype(whole))


def _compare_all(conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
    for baseline, condition in product(conditions, conditions):
        if not _is_pair(baseline, condition):
            continue
        for amount in SPENT:
            compared = compare_last(baseline, condition, amount)
            if compared is None or not compared[0]:
                continue
            point, saved = compared
            spent = {
                seed: float(condition.runs[seed].checkpoints[f"training_{amount}"][point]) for seed in saved
            }
            found = find_break_even(spent, saved)
            if found is None or (amount == "usd" and not found.training and not found.saved):
                continue
            names = dict(zip(KEYS, condition.names, strict=True))
            against = baseline.condition_name.method
            values = {**msgspec.structs.asdict(found), "result": found.result}
            yield {**names, "against": against, "checkpoint": point, "amount": amount, **values}


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
