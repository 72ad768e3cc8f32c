"""Compare episodes in which a skill ran with other episodes of the same task.

An observation, not an effect of the skill: an episode that calls it was usually played later, with a larger
library, and the actor chose to call it. `speedrunner.results.attribution` compares evaluations that differ
only in the skill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from speedrunner.results.frames import episode_amounts
from speedrunner.results.inference import CONFIDENCE, Estimate, estimate_columns
from speedrunner.results.ledger import RunCosts, run_costs
from speedrunner.results.pricing import price_book
from speedrunner.results.skill_table import SkillHistory
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    import pandas

Amount = Literal["llm_calls", "uncached", "cached", "output", "usd", "score"]
AMOUNTS: tuple[Amount, ...] = ("llm_calls", "uncached", "cached", "output", "usd", "score")
"""The compared values of an episode; all but the score are savings if they are above 0."""


WORK = 2_000_000
"""Maximum number of pairs of a skill and an episode to compare: some seconds."""

_Played = tuple[frozenset[str], list[float]]
"""The skills that ran in an episode, and its `AMOUNTS`."""

_Comparison = tuple[int, int, list[float]]
"""The number of a task's episodes with a call, of those without a call, and the differences of `AMOUNTS`."""


class SkillSaving(msgspec.Struct, frozen=True, kw_only=True):
    """The episodes of one run in which a skill ran, compared with the others of the same tasks.

    For each task that was played both with and without a call of the skill: the mean of its episodes without
    it, minus the mean of its episodes with it. An estimate is the mean of these differences over tasks, with
    a t interval over tasks; `count` is the number of tasks. `None`: no estimate, because no task was
    played in both ways, because prices are unknown (`usd`), or because comparing takes more than `WORK`. One
    task has no interval.

    Attributes:
        skill: its name. Versions and renamed skills count as in `SkillCost`.
        tasks: number of tasks that were played both with and without a call.
        episodes_with, episodes_without: number of episodes of these tasks.
        llm_calls: saved steps of the agent: LLM calls per episode.
        uncached, cached, output: saved prompt and output tokens per episode, of all roles.
        usd: saved USD per episode.
        score: score with a call minus the score without a call. A skill that ends episodes early and without
            success saves tokens, too.
    """

    skill: str
    tasks: int = 0
    episodes_with: int = 0
    episodes_without: int = 0
    llm_calls: Estimate | None = None
    uncached: Estimate | None = None
    cached: Estimate | None = None
    output: Estimate | None = None
    usd: Estimate | None = None
    score: Estimate | None = None


def skill_savings(run: RunData, history: SkillHistory, costs: RunCosts | None = None) -> list[SkillSaving]:
    """Return the observed savings of all skills that a run ever had, in the order of creation.

    A skill ran in an episode if the actor, another skill or a program called it. Training episodes are
    compared with training episodes, and test episodes with test episodes. Episodes without a score or without
    a request are left out.

    Args:
        history: the run's `skill_history`; without its held-out episodes, only training counts.
        costs: the run's priced ledger; `None`: priced by the run's own list.

    Raises:
        StorageError: the run cannot be read.
    """
    names = list(history.by_name)
    if not names or not run.episodes:
        return [SkillSaving(skill=name) for name in names]
    if costs is None:
        (costs,) = run_costs([run], [price_book(run)])
    rows = {row.episode: row for row in run.episodes}
    groups: dict[object, list[_Played]] = {}
    for use in (*history.uses, *history.tests):
        row = rows.get(use.episode)
        if row is None or row.score is None or not row.llm_calls:
            continue
        values = {**episode_amounts(row, costs), "score": row.score}
        played = frozenset(use.calls), [values[amount] for amount in AMOUNTS]
        groups.setdefault((row.phase, row.task), []).append(played)
    tasks: dict[str, list[_Comparison]] = {}
    if sum(len(_called(episodes)) * len(episodes) for episodes in groups.values()) > WORK:
        groups = {}
    for episodes in groups.values():
        for name, compared in _compare(episodes):
            tasks.setdefault(name, []).append(compared)
    return [_describe(name, tasks[name]) if name in tasks else SkillSaving(skill=name) for name in names]


def sort_savings(savings: Sequence[SkillSaving], amount: Amount) -> list[SkillSaving]:
    """Return savings by their estimate of an amount, the largest first, those without an estimate last."""

    def place(saving: SkillSaving) -> tuple[bool, float]:
        found: Estimate | None = getattr(saving, amount)
        return found is None, 0.0 if found is None else -found.mean

    return sorted(savings, key=place)


def frame_savings(savings: Sequence[SkillSaving]) -> pandas.DataFrame:
    """Return one row per skill: its counts, then `NAME`, `NAME_low` and `NAME_high` of each of `AMOUNTS`."""
    import pandas

    counts = ("skill", "tasks", "episodes_with", "episodes_without")
    ends = [f"{amount}{part}" for amount in AMOUNTS for part in ("", "_low", "_high")]
    rows = []
    for saving in savings:
        row = [getattr(saving, name) for name in counts]
        for amount in AMOUNTS:
            found: Estimate | None = getattr(saving, amount)
            row += [None, None, None] if found is None else [found.mean, found.low, found.high]
        rows.append(row)
    return pandas.DataFrame(rows, columns=[*counts, *ends]).astype(dict.fromkeys(ends, float))


CAPTION = (
    "Observed savings of skills per episode, over the tasks that a run played both with and without a call of"
    " the skill (by the actor or by other code). A value is the mean of a task's episodes without a call"
    " minus the mean of its episodes with one, averaged over tasks; score is with minus without. low, high:"
    f" {CONFIDENCE:.0%} interval over tasks (Student's t), not corrected for the number of skills. Episodes"
    " with a call were usually played later and with a larger library: this is not the effect of the skill"
    " alone, which the table attribution shows. Empty: no estimate."
)
"""The caption of the table `skill_savings`."""


def _compare(episodes: Sequence[_Played]) -> Iterator[tuple[str, _Comparison]]:
    """Yield the skills that ran in some of a task's episodes and not in others, each with its comparison."""
    for name in sorted(_called(episodes)):
        with_skill = [values for calls, values in episodes if name in calls]
        without = [values for calls, values in episodes if name not in calls]
        if without:
            means = zip(_average(without), _average(with_skill), strict=True)
            *saved, lost = (before - after for before, after in means)
            yield name, (len(with_skill), len(without), [*saved, -lost])


def _called(episodes: Sequence[_Played]) -> set[str]:
    """Return the skills that ran in some of these episodes."""
    return set[str]().union(*(calls for calls, _ in episodes))


def _average(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _describe(name: str, tasks: Sequence[_Comparison]) -> SkillSaving:
    return SkillSaving(
        skill=name,
        tasks=len(tasks),
        episodes_with=sum(task[0] for task in tasks),
        episodes_without=sum(task[1] for task in tasks),
        **dict(zip(AMOUNTS, estimate_columns([task[2] for task in tasks]), strict=True)),
    )
