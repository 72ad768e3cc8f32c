"""Runs that differ by their seed alone, and what they have in common: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

import msgspec

from speedrunner.config.names import Setting
from speedrunner.config.schema import changes_results, to_mapping
from speedrunner.statistics.summary import Checkpoint, Summary
from typed.records import flat

NAMED = ("env.", "method.", "model.card", "model.inducer_card", "model.prefix_caching")
"""Keys of which `setting` tells all."""

OWN = ("run.seed", "run.start_from", "library.visible_last")
"""What runs of a group differ in, and what `setting` tells of."""

SCHEDULE = ("run.rollouts", "run.sleep_every", "run.eval_every", "run.budget_tokens")
"""What is no setting of a run that evaluates another one's policy."""

FAMILIES = ("scienceworld-family3", "scienceworld-family4")
"""What the paper averages as ScienceWorld."""

TOO_MANY = 0.02
"""Share of test episodes ended by the wall clock over which a cell is flagged: its score hangs on a limit."""


DAGGER = f" A dagger marks what over {TOO_MANY:.0%} wall_clock endings are behind."
"""The end of a caption."""


class Spread(msgspec.Struct, frozen=True):
    """Values of seeds; `sd`, the sample's standard deviation, is `None` of one."""

    mean: float
    sd: float | None
    seeds: int


class Group(msgspec.Struct, frozen=True):
    """Runs of one setting.

    Attributes:
        setting: `method` also names what else differs from other runs of the environment and model.
        runs: ascending by seed.
    """

    setting: Setting
    runs: list[Summary]

    @property
    def other(self) -> str:
        """What `setting.method` names beside the method."""
        return self.setting.method.removeprefix(self.runs[0].setting.method)

    @property
    def points(self) -> list[int]:
        """Checkpoints that at least one seed has finished."""
        return sorted({point for run in self.runs for point in run.checkpoints})

    def at(self, point: int) -> list[tuple[Summary, Checkpoint]]:
        """The seeds that have finished a checkpoint."""
        return [(run, run.checkpoints[point]) for run in self.runs if point in run.checkpoints]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and deviation over the seeds that have a value; `None` where none has."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def average(parts: Sequence[Spread]) -> Spread:
    """The mean of several settings, of means and of deviations."""
    deviations = [part.sd for part in parts if part.sd is not None]
    sd = fmean(deviations) if len(deviations) == len(parts) else None
    return Spread(fmean(part.mean for part in parts), sd, min(part.seeds for part in parts))


def mean_sd(found: Spread | None) -> tuple[float | None, float | None]:
    """Mean and deviation, as far as they are known."""
    return (found.mean, found.sd) if found else (None, None)


def wall_clock_share(runs: Iterable[Summary], point: int) -> float:
    """The share of a checkpoint's test episodes that the wall clock ended."""
    counts = [
        (ending == "wall_clock", count)
        for run in runs
        for (phase, where, ending), count in run.endings.items()
        if (phase, where) == ("test", point)
    ]
    return sum(count for cut, count in counts if cut) / max(sum(count for _, count in counts), 1)


def grouped(summaries: Sequence[Summary]) -> tuple[list[Group], list[str]]:
    """Put runs together that differ by their seed alone.

    Returns:
        The groups, by setting; and a line for each run that is left out, as another one has its setting and
        seed (the one with more finished checkpoints is taken).
    """
    others = {id(run): _others(run) for run in summaries}
    groups: dict[Setting, dict[int, Summary]] = {}
    notes = []
    for run in sorted(summaries, key=lambda each: -len(each.checkpoints)):
        beside = [
            others[id(each)]
            for each in summaries
            if (each.setting.env, each.setting.model) == (run.setting.env, run.setting.model)
        ]
        differing = [
            f"{key}={value}"
            for key, value in others[id(run)].items()
            if any(each.get(key, value) != value for each in beside)
        ]
        method = run.setting.method + (f" ({', '.join(differing)})" if differing else "")
        runs = groups.setdefault(msgspec.structs.replace(run.setting, method=method), {})
        if run.seed in runs:
            notes.append(f"{run.path} is left out: it has the setting and the seed of {runs[run.seed].path}")
        else:
            runs[run.seed] = run
    ordered = [Group(key, [runs[seed] for seed in sorted(runs)]) for key, runs in sorted(groups.items())]
    return ordered, notes


def _others(run: Summary) -> dict[str, Any]:
    """What else of a configuration changes results."""
    evaluates = run.config.run.start_from is not None and run.config.run.rollouts == 0
    return {
        key: value
        for key, value in flat(to_mapping(run.config)).items()
        if changes_results(key)
        and not key.startswith(NAMED)
        and key not in OWN
        and not (evaluates and key in SCHEDULE)
    }
