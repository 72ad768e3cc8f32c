"""Means of test episodes with intervals and tests, for comparisons and claims.

Every interval is Student's t. It speaks about new seeds and new tasks of the environment: both are random.
`means` averages the rows of one run, and its seeds, without intervals.

- **Several seeds with the same tasks**: seeds and tasks are crossed. The variance of the mean is (MS of seeds
  + MS of tasks - MS of the rest) / values, and no less than either alone. The degrees of freedom are the
  smaller number less one, which rejects too seldom rather than too often.
- **Several seeds with tasks of their own** (Crafter): the variance is that over seeds, and no less than that
  of their episodes, since seeds can be equal by chance.
- **One seed**: the interval is over its tasks, and so about this policy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import pandas
    from numpy import ndarray

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2

Values = Mapping[int, "pandas.Series[float]"]
"""By seed, the values of a run's test episodes by task."""

Statistic = Callable[["ndarray"], "ndarray"]
"""Receives the means of all columns of all arrays of a run, of shape (columns, n), and returns n values."""


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mean over `count` values with its interval at `CONFIDENCE`.

    Attributes:
        low, high: the interval; `None` for one value, and if all values are equal, which shows nothing about
            how much others would differ.
        t, p: of a two-sided t-test against zero; `None` with one seed, or without an interval.
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
    """Values of test episodes.

    Attributes:
        runs: by seed, ascending, an array of shape (episodes, columns) for each environment.
        share_tasks: whether the rows of all runs' arrays are the same tasks.
    """

    runs: dict[int, list[ndarray]]
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


def match_tasks(values: Mapping[int, Sequence[pandas.Series[float] | pandas.DataFrame]]) -> Samples:
    """Return the values of runs in each environment, without episodes of tasks that a run lacks.

    Runs share their tasks if all of them have at least half of the tasks of the largest. Otherwise each keeps
    its own: a few of Crafter's worlds can be in two seeds by chance.
    """
    ordered = {seed: values[seed] for seed in sorted(values)}
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
            seed: [part.loc[tasks] for part, tasks in zip(parts, common, strict=True)]
            for seed, parts in ordered.items()
        }
    return Samples(
        {
            seed: [part.to_numpy(float).reshape(len(part), -1) for part in parts]
            for seed, parts in ordered.items()
        },
        share_tasks,
    )


def average_columns(means: ndarray) -> ndarray:
    """Return the mean of all columns, a `Statistic`."""
    averaged: ndarray = means.mean(axis=0)
    return averaged


def estimate_mean(values: Values) -> Estimate | None:
    """Return the mean of the seeds' means with its interval; `None` without values. For a paired comparison,
    pass the differences of the pairs."""
    return estimate_statistic(match_tasks({seed: [own] for seed, own in values.items() if len(own)}))


def estimate_independent(values: Iterable[float]) -> Estimate | None:
    """Return the mean of independent values with its interval and test; `None` without values."""
    import numpy

    runs = {number: [numpy.array([[value]])] for number, value in enumerate(values)}
    return estimate_statistic(Samples(runs, share_tasks=False))


def estimate_score(values: Values) -> Estimate | None:
    """Return the mean of the seeds' mean scores with its interval, Wilson's for shares of successes.

    Equal values have no interval, but six failures do not prove a score of 0. Scores of one seed that are all
    0 or 1 are a share, and so are those of several seeds if all are 0, or all are 1.
    """
    samples = match_tasks({seed: [own] for seed, own in values.items() if len(own)})
    found = estimate_statistic(samples)
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


def run_values(samples: Samples, statistic: Statistic) -> dict[int, float]:
    """Return the statistic of each run's means."""
    import numpy

    return {
        seed: float(statistic(numpy.concatenate([own.mean(axis=0) for own in arrays])[:, None])[0])
        for seed, arrays in samples.runs.items()
    }


def estimate_statistic(
    samples: Samples, statistic: Statistic = average_columns, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the mean over runs of a statistic of means, with its interval and test against zero; `None`
    without values."""
    import numpy
    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]  # `scipy.stats` takes a second

    values = [*run_values(samples, statistic).values()]
    if not values:
        return None
    mean, seeds = sum(values) / len(values), len(values)
    count = sum(map(sum, samples.sizes))
    largest = [size for size in samples.sizes[0] if size > 1]
    variance = float(numpy.var(values, ddof=1)) / seeds if seeds > 1 else 0.0
    if samples.share_tasks and (tasks := split_task_variance(samples, statistic)):
        variance = max(variance + tasks.of_tasks - tasks.of_rest, variance, tasks.of_tasks)
        levels = [seeds, min(largest)]
    else:
        variance = max(variance, _vary_within(samples, statistic))
        levels = [seeds] if seeds > 1 else [min(largest, default=1)]
    if variance <= 1e-24 * samples.scale**2:  # equal up to rounding
        return Estimate(mean, None, None, count)
    freedom, error = min(levels) - 1, math.sqrt(variance)
    half = error * float(stdtrit(freedom, (1 + confidence) / 2))
    if seeds < 2:
        return Estimate(mean, mean - half, mean + half, count)
    p = 2 * float(stdtr(freedom, -abs(mean / error)))
    return Estimate(mean, mean - half, mean + half, count, mean / error, p)


def _vary_within(samples: Samples, statistic: Statistic) -> float:
    """Return the variance of the mean over runs by their episodes alone."""
    parts = [
        float((_weigh_episodes(arrays, place, statistic) ** 2).sum()) / (len(own) * (len(own) - 1))
        for arrays in samples.runs.values()
        for place, own in enumerate(arrays)
        if len(own) > 1
    ]
    return sum(parts) / len(samples.runs) ** 2


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
