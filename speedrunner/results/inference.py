"""Confidence intervals and tests for differences between conditions.

A condition has few libraries (seeds) and many test tasks. Episodes of one seed share a library, so they are
not independent samples of the method. In most environments all seeds play the same tasks, so episodes of one
task are not independent either. Intervals are about new seeds and new tasks of the environment:

- **Shared tasks.** Seeds and tasks are crossed random factors. The variance of the mean is that of a two-way
  analysis, and the bootstrap draws seeds and, for all of them together, tasks.
- **Own tasks of each seed** (Crafter's worlds) are nested in it: the test compares the means of seeds
  (Student's t), and the bootstrap draws seeds, then episodes within each.
- If runs differ in the **wording** of their prompts too, wordings are crossed with both.

The paper's own test treats all pairs of seed and episode as independent. It is included for comparison and
rejects too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    import pandas
    from numpy import ndarray

CONFIDENCE = 0.95
RESAMPLES = 10_000

TAIL = (1 - CONFIDENCE) / 2
SEED = 0
"""Fixed, so that the same values always have the same interval."""

RunKey = tuple[int, int]
"""Wording (`run.wording`) and seed of a run."""

T = TypeVar("T")

LEAST_WORDINGS = 3
"""Wordings that are tested together: fewer say next to nothing about how much wordings vary."""

Values = Mapping[RunKey, "pandas.Series[float]"]
"""Values of the test episodes of each run, by task."""

Statistic = Callable[["ndarray"], "ndarray"]
"""Receives the means of all columns of all arrays of a run, of shape (columns, n), and returns n values."""


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mean over `count` values with its interval at `CONFIDENCE`.

    Attributes:
        low, high: the interval; `None` for one value, and if all values are equal, which shows nothing about
            how much others would differ.
        t, p: of a two-sided t-test against zero; `None` without a test or an interval.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    t: float | None = None
    p: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the interval; `None` if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class Samples(NamedTuple):
    """Values of test episodes to be resampled.

    Attributes:
        runs: by wording and seed, ascending, an array of shape (episodes, columns) for each environment.
        share_tasks: whether the rows of all runs' arrays are the same tasks.
    """

    runs: dict[RunKey, list[ndarray]]
    share_tasks: bool

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Return the number of rows of each array, by run."""
        return tuple(tuple(map(len, arrays)) for arrays in self.runs.values())

    @property
    def tasks(self) -> int:
        """Return the number of tasks: shared ones count once."""
        return sum(map(sum, self.sizes[:1] if self.share_tasks else self.sizes))

    @property
    def is_share(self) -> bool:
        """Return whether all values are 0 or 1."""
        return all(bool(((own == 0) | (own == 1)).all()) for arrays in self.runs.values() for own in arrays)

    @property
    def scale(self) -> float:
        """Return the largest absolute value, to which rounding errors are relative."""
        return max(float(abs(own).max()) for arrays in self.runs.values() for own in arrays)


def match_tasks(values: Mapping[RunKey, Sequence[pandas.Series[float] | pandas.DataFrame]]) -> Samples:
    """Return the values of runs in each environment, without episodes of tasks that a run lacks.

    Runs share their tasks if all of them have at least half of the tasks of the largest. Otherwise each keeps
    its own: a few of Crafter's worlds can be in two seeds by chance.
    """
    ordered = {key: values[key] for key in sorted(values)}
    common = []
    for parts in zip(*ordered.values(), strict=True):
        shared = parts[0].index
        for part in parts[1:]:
            shared = shared.intersection(part.index, sort=False)
        if 2 * len(shared) < max(map(len, parts)):
            break
        common.append(shared)
    share_tasks = len(ordered) > 1 and len(common) == len(next(iter(ordered.values())))
    if share_tasks:
        ordered = {
            key: [part.loc[tasks] for part, tasks in zip(parts, common, strict=True)]
            for key, parts in ordered.items()
        }
    return Samples(
        {
            key: [part.to_numpy(float).reshape(len(part), -1) for part in parts]
            for key, parts in ordered.items()
        },
        share_tasks,
    )


def average_columns(means: ndarray) -> ndarray:
    """Return the mean of all columns, a `Statistic`."""
    averaged: ndarray = means.mean(axis=0)
    return averaged


def bootstrap_seeds(values: Values) -> Estimate | None:
    """Return the mean of the seeds' means with its percentile bootstrap interval; `None` without values. For
    a paired comparison, pass the differences of the pairs.

    With one seed, only tasks are drawn: the interval then applies to this library only. With fewer than five
    seeds the interval is too narrow: use that of `ttest_statistic`.
    """
    samples = match_tasks({key: [own] for key, own in values.items() if len(own)})
    return bootstrap_statistic(samples, average_columns)


def estimate_score(values: Values) -> Estimate | None:
    """Return the mean of the seeds' mean scores with its interval, Wilson's for shares of successes.

    A bootstrap of equal values has no width, but six failures do not prove a score of 0. Scores of one seed
    that are all 0 or 1 are a share, and so are those of several seeds if all are 0, or all are 1.
    """
    samples = match_tasks({key: [own] for key, own in values.items() if len(own)})
    found = bootstrap_statistic(samples, average_columns)
    if found is None or found.count < 2 or not samples.is_share or (len(samples.runs) > 1 and found.ends):
        return found
    low, high = wilson_interval(found.mean, samples.tasks)
    return Estimate(found.mean, low, high, found.count)


def wilson_interval(share: float, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's interval of a share of successes in `count` tries."""
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    middle = share + square / (2 * count)
    half = math.sqrt(square * (share * (1 - share) / count + square / (4 * count**2)))
    low, high = ((middle + side * half) / (1 + square / count) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def bootstrap_statistic(
    samples: Samples, statistic: Statistic, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the mean over runs of a statistic of means, with its percentile bootstrap interval.

    The same samples always give the same interval. Rows of an array are drawn together, arrays independently.
    """
    import numpy

    if not samples.runs:
        return None
    mean = float(numpy.mean([*run_values(samples, statistic).values()]))
    count = sum(map(sum, samples.sizes))
    if count < 2:
        return Estimate(mean, None, None, count)
    shares, chosen, which = _draw(samples.sizes, samples.share_tasks)
    drawn = numpy.stack(
        [
            statistic(numpy.concatenate([own.T @ share for own, share in zip(arrays, of_run, strict=True)]))
            for arrays, of_run in zip(samples.runs.values(), shares, strict=True)
        ]
    )
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = map(float, numpy.quantile(drawn[chosen, which].mean(axis=0), ends))
    if high - low <= 1e-12 * samples.scale:  # equal up to rounding
        return Estimate(mean, None, None, count)
    return Estimate(mean, low, high, count)


def run_values(samples: Samples, statistic: Statistic) -> dict[RunKey, float]:
    """Return the statistic of each run's means."""
    import numpy

    return {
        key: float(statistic(numpy.concatenate([own.mean(axis=0) for own in arrays])[:, None])[0])
        for key, arrays in samples.runs.items()
    }


@lru_cache(maxsize=4)
def _draw(
    sizes: tuple[tuple[int, ...], ...], share_tasks: bool
) -> tuple[list[list[ndarray]], ndarray, ndarray]:
    """Return what resampling draws for arrays with these numbers of rows, by run: most comparisons of a
    report have samples of the same size.

    Returns:
        The share of each row in each resample of an array, of shape (rows, `RESAMPLES`), the same for all
        runs if they share tasks; the drawn runs and, for each of them, which resample of its rows is used,
        both of shape (runs, `RESAMPLES`). Without shared tasks these are new rows for each drawn run, also
        if a run is drawn twice.
    """
    import numpy

    random = numpy.random.default_rng(SEED)

    def share(size: int) -> ndarray:
        rows = random.integers(size, size=(RESAMPLES, size)) + size * numpy.arange(RESAMPLES)[:, None]
        counts = numpy.bincount(rows.ravel(), minlength=size * RESAMPLES).reshape(RESAMPLES, size)
        shares: ndarray = numpy.ascontiguousarray(counts.T / size)
        return shares

    of_runs = [[share(size) for size in own] for own in (sizes[:1] if share_tasks else sizes)]
    shares = of_runs * len(sizes) if share_tasks else of_runs
    if len(sizes) == 1:
        return shares, numpy.zeros((1, RESAMPLES), dtype=int), numpy.arange(RESAMPLES)[None]
    chosen = random.integers(len(sizes), size=(len(sizes), RESAMPLES))
    orders = [numpy.arange(RESAMPLES) if share_tasks else random.permutation(RESAMPLES) for _ in sizes]
    return shares, chosen, numpy.stack(orders)


def ttest_statistic(
    samples: Samples, statistic: Statistic, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Test the mean over runs of a statistic of means against zero. `None` without values.

    Args:
        samples: of one wording, or of wordings that cross all seeds (`keep_crossing`).

    The variance of the mean is that over runs, plus the part of tasks if runs share them, and no less than
    either. The degrees of freedom are the smallest number of wordings, seeds or shared tasks, minus one: this
    rejects too seldom rather than too often.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]

    values = run_values(samples, statistic)
    if not values:
        return None
    mean = sum(values.values()) / len(values)
    wordings, seeds = count_levels(values)
    if seeds < 2:
        return Estimate(mean, None, None, 1)
    variance, levels = _variance_over_runs(values), [count for count in (wordings, seeds) if count > 1]
    if samples.share_tasks and (tasks := split_task_variance(samples, statistic)):
        variance = max(variance + tasks.of_tasks - tasks.of_rest, variance, tasks.of_tasks)
        levels.append(min(size for size in samples.sizes[0] if size > 1))
    if variance <= 1e-24 * samples.scale**2:  # equal up to rounding
        return Estimate(mean, None, None, len(values))
    freedom = min(levels) - 1
    half, t = math.sqrt(variance) * student.ppf((1 + confidence) / 2, freedom), mean / math.sqrt(variance)
    p = 2 * student.sf(abs(t), freedom)
    return Estimate(mean, mean - float(half), mean + float(half), len(values), t, float(p))


def _variance_over_runs(values: Mapping[RunKey, float]) -> float:
    """Return the variance of the mean of at least two runs: over seeds, or over wordings crossed with seeds,
    which is (MS of wordings + MS of seeds - MS of the rest) / runs, and no less than over either alone."""
    import numpy

    wordings, seeds = count_levels(values)
    cells = numpy.array([values[key] for key in sorted(values)]).reshape(wordings, seeds)
    mean, by_wording, by_seed = cells.mean(), cells.mean(axis=1), cells.mean(axis=0)
    if wordings < 2:
        return float(by_seed.var(ddof=1) / seeds)
    rest = cells - by_wording[:, None] - by_seed + mean
    squares = seeds * by_wording.var(ddof=1), wordings * by_seed.var(ddof=1)
    error = (rest**2).sum() / ((wordings - 1) * (seeds - 1))
    return float(max(sum(squares) - error, *squares) / cells.size)


class TaskVariance(NamedTuple):
    """Two parts of the variance of a mean over runs that share their tasks.

    Attributes:
        of_tasks: over the tasks' means, which contains an equal part of the rest.
        of_rest: of what neither the run nor the task explains.
    """

    of_tasks: float
    of_rest: float


def split_task_variance(samples: Samples, statistic: Statistic) -> TaskVariance | None:
    """Return the mean squares of tasks and of the rest, divided by the number of values; `None` if there is
    only one task.

    The statistic need not be linear: the weight of an episode is the change of its run's value without it.
    """
    import numpy

    of_tasks, of_rest = 0.0, 0.0
    arrays = [*samples.runs.values()]
    for place, size in enumerate(samples.sizes[0]):
        if size < 2:
            continue
        weights = numpy.stack([_weigh_episodes(own, place, statistic) for own in arrays])
        of_task = weights.mean(axis=0)
        of_tasks += float((of_task**2).sum() / (size * (size - 1)))
        freedom = (len(arrays) - 1) * (size - 1)
        of_rest += float(((weights - of_task) ** 2).sum() / freedom / weights.size)
    return TaskVariance(of_tasks, of_rest) if max(samples.sizes[0]) > 1 else None


def _weigh_episodes(arrays: Sequence[ndarray], place: int, statistic: Statistic) -> ndarray:
    """Return the deviation of each row of one of a run's arrays in units of the statistic, with mean 0."""
    import numpy

    own, size = arrays[place], len(arrays[place])
    without = [
        ((own.sum(axis=0) - own) / (size - 1)).T
        if number == place
        else numpy.repeat(other.mean(axis=0)[:, None], size, axis=1)
        for number, other in enumerate(arrays)
    ]
    values = statistic(numpy.concatenate(without))
    weights: ndarray = (size - 1) * (values.mean() - values)
    return weights


def keep_crossing(runs: Mapping[RunKey, T]) -> dict[RunKey, T]:
    """Return all runs if at least `LEAST_WORDINGS` wordings have the same seeds; otherwise those of the first
    wording alone, so that a trial of another one changes no verdict."""
    wordings, seeds = count_levels(runs)
    crosses = wordings >= LEAST_WORDINGS and len(runs) == wordings * seeds
    return {key: run for key, run in runs.items() if crosses or key[0] == min(runs)[0]}


def count_levels(keys: Iterable[RunKey]) -> tuple[int, int]:
    """Return the number of wordings and of seeds."""
    wordings, seeds = (set(level) for level in zip(*keys, strict=True)) if (keys := [*keys]) else ((), ())
    return len(wordings), len(seeds)


def paper_ttest(differences: Sequence[float], confidence: float = CONFIDENCE) -> Estimate | None:
    """Test the mean of differences against zero as if they were independent; `None` without differences."""
    import numpy
    from scipy.stats import ttest_1samp

    if not differences:
        return None
    given = numpy.asarray(differences, dtype=float)
    count, mean = len(given), float(given.mean())
    if numpy.ptp(given) <= 1e-12 * numpy.abs(given).max():  # one value, or equal up to rounding
        return Estimate(mean, None, None, count)
    tested = ttest_1samp(given, 0.0)
    low, high = tested.confidence_interval(confidence)
    return Estimate(mean, float(low), float(high), count, float(tested.statistic), float(tested.pvalue))
