"""Contribution of each skill of a stored policy: differences of evaluations, paired by task.

Runs that evaluate a policy with some of its skills hidden or removed are compared with runs of the whole
library that have the same seed and settings. A task's difference is its mean over seeds. Intervals resample
tasks: they apply to this policy, not to the method.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas
from msgspec.structs import astuple, replace

from envs import Task
from serving.plain_records import flat
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import Config, changes_results, to_mapping
from speedrunner.results.coalitions import Coalition, Share, shapley_values
from speedrunner.results.conditions import KEYS
from speedrunner.results.inference import CONFIDENCE, RESAMPLES, Estimate, bootstrap_mean
from speedrunner.results.measures import MEASURES
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Table, table_of

METRICS = tuple(each.name for each in MEASURES if each.is_compared)

ALL = "all"
"""The row of the whole library compared with the empty one."""

CHANGES = {"hide": "hidden", "remove": "removed"}


@dataclass(frozen=True)
class EvaluatedPolicy:
    """The evaluations of one policy that differ only in seed and shown skills.

    Attributes:
        condition_name: that of the whole library.
        whole: finished runs of the whole library, by seed.
        parts: finished runs of parts of it, by change (`hide`, `remove`) and skills, then by seed.
        folder: the folder of its runs.
        unfinished: runs without a finished evaluation.
    """

    condition_name: ConditionName
    start_from: str
    folder: Path
    whole: dict[int, RunResult] = field(default_factory=dict)
    parts: dict[tuple[str, Coalition], dict[int, RunResult]] = field(default_factory=dict)
    unfinished: list[RunResult] = field(default_factory=list)

    @property
    def skills(self) -> list[str]:
        """Return the skills that an evaluation hides or removes, sorted."""
        return sorted({skill for _, names in self.parts for skill in names})

    @property
    def public(self) -> int:
        """Return the number of public skills of the whole library; 0 without a finished run."""
        runs = [run for own in (self.whole, *self.parts.values()) for run in own.values()]
        return int(runs[0].checkpoints["public"].iloc[-1]) if runs else 0

    @property
    def runs(self) -> list[str]:
        """Return the paths of all finished runs."""
        parts = [self.whole, *self.parts.values()]
        return [run.path for runs in parts for run in runs.values()]

    def pair(self, part: tuple[str, Coalition], metric: str) -> pandas.DataFrame:
        """Return the pairs of a metric: `task`, `seed`, `with_skill`, `without`.

        Pairs have the same seed and task, and a value on both sides.
        """
        found = [pandas.DataFrame(columns=["task", "seed", "with_skill", "without"])]
        for seed, run in self.parts[part].items():
            if seed in self.whole:
                with_skill = _values(self.whole[seed], metric).rename("with_skill")
                both = with_skill.to_frame().join(_values(run, metric).rename("without"), how="inner")
                found.append(both.reset_index().assign(seed=seed))
        return pandas.concat(found[1:] or found, ignore_index=True)


def shows_part(run: RunResult) -> bool:
    """Return whether a run hides or removes some skills. Only the tables of this module have these runs."""
    library = run.config.library
    return bool(library.hide or library.remove)


def group_subjects(runs: Sequence[RunResult]) -> list[EvaluatedPolicy]:
    """Return the policies with an evaluation that hides or removes skills, sorted by name."""
    keys = {_key(run.config) for run in runs if shows_part(run)}
    found: dict[str, EvaluatedPolicy] = {}
    for run in sorted(runs, key=lambda run: run.path):
        key, library = _key(run.config), run.config.library
        if key not in keys:
            continue
        name = condition_name(replace(run.config, library=replace(library, hide=[], remove=[])))
        subject = found.setdefault(
            key, EvaluatedPolicy(name, run.config.run.start_from or "", Path(run.path).parent)
        )
        if run.unfinished or run.checkpoints.empty:
            subject.unfinished.append(run)
        elif not shows_part(run):
            subject.whole.setdefault(run.seed, run)
        elif not (library.hide and library.remove):
            subject.parts.setdefault(_part(run), {}).setdefault(run.seed, run)
    return sorted(found.values(), key=lambda each: (each.condition_name, each.start_from))


def make_attribution_tables(subjects: Sequence[EvaluatedPolicy]) -> list[Table]:
    """Return the tables `attribution` and `shapley`."""
    return [_attribution_table(subjects), _shapley_table(subjects)]


def find_gaps(subjects: Sequence[EvaluatedPolicy]) -> dict[str, list[str]]:
    """Return what is missing of each policy's evaluations, by the command that plays them."""
    gaps = {}
    for each in subjects:
        missing = [f"{run.path} is not finished" for run in each.unfinished]
        if not each.whole:
            missing.append(f"no finished evaluation of the whole library of {each.start_from}")
        tried = {*each.skills, *(skill for run in each.unfinished for skill in _part(run)[1])}
        if len(tried) < each.public:
            missing.append(f"{len(tried)} of {each.public} public skills were evaluated")
        if missing:
            partly = [*each.parts, *(_part(run) for run in each.unfinished)]
            several = {names for _, names in partly if len(names) > 1}
            experiment = "shapley" if len(several) > 1 else "attribution"
            words = [f"experiment={experiment}", f"run.start_from={each.start_from}", f"--dir={each.folder}"]
            gaps[f"speedrunner sweep {shlex.join(words)}"] = missing
    return gaps


def rate_skill(pairs: pandas.DataFrame) -> tuple[pandas.DataFrame, Estimate | None]:
    """Return each task's means with the column `added`, and the mean of `added`, for pairs of
    `EvaluatedPolicy.pair`.

    `added` is the value with the skill minus the value without it: a skill that saves calls adds less than 0.
    """
    tasks = pairs.groupby("task", sort=False)[["with_skill", "without"]].mean()
    tasks["added"] = tasks["with_skill"] - tasks["without"]
    return tasks, bootstrap_mean(tasks["added"].tolist())


def share_skills(subject: EvaluatedPolicy, metric: str) -> dict[str, tuple[Share, Estimate]]:
    """Return the Shapley value of each hidden skill with its interval over tasks; empty if it is unknown.

    All values are means over the seeds and tasks that every coalition has played.
    """
    skills = _players(subject)
    if len(skills) < subject.public:
        return {}
    runs = {frozenset(skills): subject.whole} | {
        frozenset(skills) - hidden: own for (change, hidden), own in subject.parts.items() if change == "hide"
    }
    seeds = set.intersection(*map(set, runs.values()))
    values = {one: _by_task([own[seed] for seed in seeds], metric) for one, own in runs.items()}
    tasks = [task for task in values[frozenset(skills)] if all(task in own for own in values.values())]
    means = {one: sum(own[task] for task in tasks) / len(tasks) for one, own in values.items() if tasks}
    shares = shapley_values(skills, set(means), means.__getitem__)
    by_task = [
        shapley_values(skills, set(means), {one: own[task] for one, own in values.items()}.__getitem__)
        for task in tasks
    ]
    found = {}
    for skill, share in shares.items():
        around = bootstrap_mean([own[skill].value for own in by_task])
        assert around is not None
        found[skill] = share, around
    return found


def _attribution_table(subjects: Sequence[EvaluatedPolicy]) -> Table:
    rows = [row for subject in subjects for part in _list_parts(subject) for row in _rows(subject, part)]
    columns = [*KEYS, "skill", "change", "metric", "seeds", "tasks", "pairs"]
    columns += ["with_skill", "without", "added", "low", "high"]
    text = (
        "Contribution of each skill of a stored policy per test episode: the whole library (with_skill)"
        " minus the library without this skill, which is hidden from the actor (other skills can call it)"
        " or removed."
        " Values are paired by seed, test episode and task, and averaged over seeds, then over tasks."
        f" Intervals: {CONFIDENCE:.0%} percentile bootstrap over tasks ({RESAMPLES} resamples); they apply to"
        f" this policy alone. Negative calls, tokens and USD are savings. {ALL}: the whole library compared"
        " with the empty one. USD of the test episodes alone."
    )
    return table_of("attribution", text, pandas.DataFrame(rows, columns=columns))


def _rows(subject: EvaluatedPolicy, part: tuple[str, Coalition]) -> Iterator[tuple[object, ...]]:
    change, names = part
    skill = next(iter(names)) if len(names) == 1 else ALL
    for metric in METRICS:
        pairs = subject.pair(part, metric)
        tasks, added = rate_skill(pairs)
        if added is None:
            continue
        counts = pairs["seed"].nunique(), len(tasks), len(pairs)
        means = float(tasks["with_skill"].mean()), float(tasks["without"].mean())
        around = added.mean, added.low, added.high
        yield (*astuple(subject.condition_name), skill, CHANGES[change], metric, *counts, *means, *around)


def _shapley_table(subjects: Sequence[EvaluatedPolicy]) -> Table:
    rows = []
    for subject in subjects:
        for metric in METRICS:
            for skill, (share, around) in share_skills(subject, metric).items():
                own = (share.orders, around.count, share.value, share.error, around.low, around.high)
                rows.append((*astuple(subject.condition_name), skill, metric, *own))
    columns = [*KEYS, "skill", "metric", "orders", "tasks", "value", "order_error", "low", "high"]
    text = (
        "Shapley values of the skills of a stored policy, per test episode: the mean contribution of each"
        " skill when skills are shown to the actor one by one, over orders. They sum to the whole library"
        " minus the empty one. orders: number of sampled orders, empty if all sets of skills were played."
        " order_error: standard error from sampling them. low, high:"
        f" {CONFIDENCE:.0%} percentile bootstrap over tasks ({RESAMPLES} resamples), for these orders."
    )
    frame = pandas.DataFrame(rows, columns=columns).astype({"orders": "Int64"})
    return table_of("shapley", text, frame)


def _list_parts(subject: EvaluatedPolicy) -> list[tuple[str, Coalition]]:
    """Return the parts without one skill, sorted by skill.

    If the policy has several public skills, the parts without any skill follow.
    """
    single = sorted((part for part in subject.parts if len(part[1]) == 1), key=lambda part: [*part[1]])
    everything = [part for part in subject.parts if len(part[1]) == subject.public > 1]
    return [*single, *sorted(everything, key=lambda part: part[0])]


def _part(run: RunResult) -> tuple[str, Coalition]:
    library = run.config.library
    return "hide" if library.hide else "remove", frozenset(library.hide or library.remove)


def _players(subject: EvaluatedPolicy) -> list[str]:
    return sorted({skill for change, names in subject.parts if change == "hide" for skill in names})


def _by_task(runs: Sequence[RunResult], metric: str) -> dict[Task, float]:
    """Return the mean of each task over seeds and test episodes with a value; empty without runs."""
    if not runs:
        return {}
    values = pandas.concat([_values(run, metric) for run in runs])
    means = values.groupby(level="task", sort=False).mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def _values(run: RunResult, metric: str) -> pandas.Series[float]:
    """Return a metric of each scored test episode of the last checkpoint, by task."""
    return run.values(run.points[-1], metric)


def _key(config: Config) -> str:
    """Return what the runs of one subject have in common."""
    whole = replace(config, library=replace(config.library, hide=[], remove=[]))
    settings = flat(to_mapping(whole)).items()
    return json.dumps({key: value for key, value in settings if changes_results(key) and key != "run.seed"})
