"""Test episodes until a policy has repaid the sleeps that made it.

A run's sleeps are repaid by the difference between an episode before training and one at the last checkpoint
of all seeds, each without a share of sleeps, under the same prices and cache rule. The number of episodes is
a ratio of two means over seeds. Its interval is Fieller's: the ratios that a paired t-test does not reject.
If the saving could be zero, the interval has no upper end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isclose, sqrt

import numpy
import pandas
from msgspec import Struct

from speedrunner.results.conditions import Condition
from speedrunner.results.inference import CONFIDENCE
from speedrunner.results.means import RULES
from speedrunner.results.pricing import RuleName
from speedrunner.results.writing import Cell, Table, caption

SUFFIXES: dict[RuleName, str] = {"engine": "", **{rule: f"_{rule}" for rule in RULES}}
"""What the cache rules add to the names of columns of checkpoints."""


class BreakEven(Struct, frozen=True):
    """When sleeps are repaid.

    Attributes:
        spent: USD of a run's sleeps, mean over seeds.
        saved: USD that an episode costs less than before training, mean over seeds.
        episodes: until the sleeps are repaid; `None`: never, since an episode does not cost less.
        low, high: the interval; `None` for one seed, and an end that there is not.
        seeds: with two checkpoints.
    """

    spent: float
    saved: float
    episodes: float | None
    low: float | None
    high: float | None
    seeds: int

    def __str__(self) -> str:
        if self.episodes is None:
            return "never" if self.low is None else f"never (or from {self.low:.0f})"
        if self.low is None:
            return f"{self.episodes:.0f}"
        return f"{self.episodes:.0f} (" + (
            f"from {self.low:.0f})" if self.high is None else f"{self.low:.0f} to {self.high:.0f})"
        )

    def describe(self) -> str:
        """Return a line of text about one run."""
        costs = f"Break-even: the sleeps cost {self.spent:.6f} USD, and an episode costs"
        if self.saved > 0:
            less = f"{self.saved:.6f} USD less than at the first checkpoint"
            return f"{costs} {less}. Test episodes until they are repaid: {self}."
        change = f"{-self.saved:.6f} USD more than" if self.saved else "as much as"
        return f"{costs} {change} at the first checkpoint, so they are never repaid."


def break_even(runs: Iterable[pandas.DataFrame], rule: RuleName = "engine") -> BreakEven | None:
    """Return when the sleeps of runs are repaid; `None` if they have no sleeps, prices or second checkpoint.

    A checkpoint counts if all seeds have a complete evaluation there, and the cost of an episode.

    Args:
        runs: the checkpoints of each seed.
        rule: the cache rule of the columns.
    """
    suffix = SUFFIXES[rule]
    sleeps, episodes = list["pandas.Series[float]"](), list["pandas.Series[float]"]()
    for points in runs:
        shares, costs = (points[f"{name}_usd{suffix}"] for name in ("sleep", "cost"))
        known = (costs - shares)[points["complete"]].dropna()
        if len(known) > 1:
            sleeps.append(shares * shares.index.to_series().diff())
            episodes.append(known.rename(len(episodes)))
    common = pandas.concat(episodes, axis=1, join="inner") if episodes else pandas.DataFrame()
    if len(common) < 2:
        return None
    pairs = [
        (float(own.loc[: common.index[-1]].sum()), 0.0 if isclose(first, last) else float(first - last))
        for own, first, last in zip(sleeps, common.iloc[0], common.iloc[-1], strict=True)
    ]
    if not any(spent for spent, _ in pairs):
        return None
    spent, saved = (float(mean) for mean in numpy.mean(pairs, axis=0))
    low, high = _fieller(pairs) if len(pairs) > 1 else (None, None)
    return BreakEven(spent, saved, spent / saved if saved > 0 else None, low, high, len(pairs))


def _fieller(pairs: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Return the interval of the ratio of two positive means; `None` for an end that there is not."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    (spent, saved), freedom = numpy.mean(pairs, axis=0), len(pairs) - 1
    square = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) ** 2 / len(pairs)
    (of_spent, both), (_, of_saved) = square * numpy.cov(pairs, rowvar=False)
    # The ratios r with (spent - r * saved)**2 <= its variance times the square of the quantile.
    a, b, c = saved**2 - of_saved, spent * saved - both, spent**2 - of_spent
    root = b**2 - a * c
    if root < 0 or a == 0 or c <= 0:
        return None, None
    low, high = sorted(((b - sqrt(root)) / a, (b + sqrt(root)) / a))
    if high <= 0:
        return None, None
    return (low, high) if a > 0 else (high, None)


def break_even_table(conditions: Sequence[Condition]) -> Table:
    """Return when each condition's sleeps are repaid, by each cache rule."""
    rows: list[tuple[Cell, ...]] = []
    for condition in conditions:
        for rule in SUFFIXES:
            if found := break_even((run.checkpoints for run in condition.runs.values()), rule):
                amounts = found.spent, found.saved, found.episodes, found.low, found.high
                rows.append((*condition.names, rule, found.seeds, *amounts))
    columns = ["env", "method", "model", "cache_rule", "seeds", "sleeps_usd", "saved_usd", "episodes", "low"]
    return Table("break_even", caption("break_even", confidence=CONFIDENCE), [*columns, "high"], rows)
