"""The tables of some runs; docs/statistics.md says what each holds."""

from __future__ import annotations

from collections.abc import Sequence

from speedrunner.statistics.groups import DAGGER, TOO_MANY, Group, mean_sd, spread, wall_clock_share
from speedrunner.statistics.intervals import CONFIDENCE, RESAMPLES, bootstrap_mean
from speedrunner.statistics.libraries import LibraryStatistics
from speedrunner.statistics.skill_costs import SkillCost
from speedrunner.statistics.summary import MEASURES
from speedrunner.statistics.ttests import TESTED, ttest_tables
from speedrunner.statistics.without_cache import cache_table, share_table
from speedrunner.statistics.writing import Cell, Table

SETTING = ("env", "method", "model")
LIBRARY = tuple(LibraryStatistics.__struct_fields__)


def run_tables(groups: Sequence[Group], *, prices: str, corrected: bool) -> list[Table]:
    """The tables of our runs.

    Args:
        prices: what the prices are called, for captions.
        corrected: whether p-values are corrected by Holm's procedure.
    """
    return [
        _performance(groups, prices),
        _seeds(groups),
        _training(groups, prices),
        _intervals(groups),
        *ttest_tables(groups, corrected),
        share_table(groups),
        cache_table(groups),
        _libraries(groups),
        _endings(groups),
        _sleeps(groups),
        _skills(groups),
    ]


def _performance(groups: Sequence[Group], prices: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    flagged = set()
    for group in groups:
        for point in group.points:
            seeds = [at for _, at in group.at(point)]
            means = {name: spread(at.mean(name) for at in seeds) for name in MEASURES}
            score = means["score"]
            played = sum(at.played for at in seeds)
            if wall_clock_share((run for run, _ in group.at(point)), point) > TOO_MANY:
                flagged.add(len(rows))
            rows.append(
                (
                    *_name(group),
                    *(point, score.seeds if score else 0, played),
                    *(played - sum(len(at.tested) for at in seeds), *mean_sd(score)),
                    *(mean_sd(means[name])[0] for name in MEASURES[1:]),
                )
            )
    columns = (
        *SETTING,
        "checkpoint",
        "seeds",
        "episodes",
        "unscored",
        "score_mean",
        "score_std",
        *MEASURES[1:],
    )
    text = (
        "After so many training rollouts (checkpoint): the score's mean over test episodes, then mean and"
        " standard deviation over seeds; LLM calls, primitive actions, tokens (uncached and cached prompt,"
        " output) and USD per test episode. Unscored episodes ended by a fault and are in no mean. USD"
        " include the sleep that made the policy, divided by the rollouts of its batch."
        f" Prices: {prices}.{DAGGER}"
    )
    return Table("performance", text, columns, rows, frozenset(flagged))


def _seeds(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (*_name(group), run.seed, point, at.played, at.played - len(at.tested), *map(at.mean, MEASURES))
        for group in groups
        for point in group.points
        for run, at in group.at(point)
    ]
    columns = (*SETTING, "seed", "checkpoint", "episodes", "unscored", *MEASURES)
    return Table("seeds", "Of each seed what the table performance takes the mean of.", columns, rows)


def _intervals(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for point in group.points:
            for metric in TESTED:
                found = bootstrap_mean([each for _, at in group.at(point) for each in at.values(metric)])
                if found is not None:
                    around = (found.mean, found.low, found.high)
                    rows.append((*_name(group), point, metric, found.count, *around))
    text = (
        f"Means over the test episodes of all seeds, with {CONFIDENCE:.0%} percentile bootstrap intervals"
        f" over these ({RESAMPLES} resamples); USD of the test episodes alone."
    )
    columns = (*SETTING, "checkpoint", "metric", "episodes", "mean", "low", "high")
    return Table("intervals", text, columns, rows)


def _training(groups: Sequence[Group], prices: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for point in group.points:
            found = spread(at.training_usd for _, at in group.at(point))
            if found is not None:
                rows.append((*_name(group), point, found.seeds, *mean_sd(found)))
    text = (
        "USD per training rollout since the checkpoint before, with its share of the sleep after it: mean and"
        f" standard deviation over seeds. Prices: {prices}."
    )
    return Table("training", text, (*SETTING, "checkpoint", "seeds", "cost_usd", "cost_usd_std"), rows)


def _libraries(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for point in group.points:
            libraries = [at.library for _, at in group.at(point)]
            if any(library.functions for library in libraries):
                found = [spread(getattr(library, name) for library in libraries) for name in LIBRARY]
                rows.append(
                    (*_name(group), point, len(libraries), *(v for each in found for v in mean_sd(each)))
                )
    columns = (*SETTING, "checkpoint", "seeds", *(each for name in LIBRARY for each in (name, f"{name}_std")))
    text = (
        "Libraries (Appendix H): functions, edges on the longest path of the call graph, mean depth, density"
        " without self-edges, mean cyclomatic complexity, share of functions about combat; mean and standard"
        " deviation over seeds. Functions that call each other in a circle count as one node of a path."
    )
    return Table("libraries", text, columns, rows)


def _endings(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    flagged = set()
    for group in groups:
        keys = sorted({(phase, point) for run in group.runs for phase, point, _ in run.endings})
        for phase, point in keys:
            counts: dict[str, int] = {}
            for run in group.runs:
                for (phase_, point_, ending), count in run.endings.items():
                    if (phase_, point_) == (phase, point):
                        counts[ending] = counts.get(ending, 0) + count
            total = sum(counts.values())
            for ending, count in sorted(counts.items()):
                cut = ending == "wall_clock" and count > TOO_MANY * total
                if cut:
                    flagged.add(len(rows))
                rows.append(
                    (
                        *_name(group),
                        phase,
                        point,
                        ending,
                        count,
                        total,
                        count / total,
                        "too many" if cut else "",
                    )
                )
    columns = (*SETTING, "phase", "checkpoint", "ending", "episodes", "of", "share", "flag")
    text = f"How episodes ended; a training batch is known by the rollouts before it.{DAGGER}"
    return Table("endings", text, columns, rows, frozenset(flagged))


def _sleeps(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for run in group.runs:
            for each in run.sleeps:
                prefix = each.prefix
                lengths = (
                    (prefix.before, prefix.after, prefix.before - prefix.kept) if prefix else (None,) * 3
                )
                rows.append(
                    (
                        *(*_name(group), run.seed, each.sleep, each.rollouts, each.llm_calls),
                        *(each.accepted, each.refused, each.uncached, each.cached, each.output),
                        *(each.cost_usd, each.seconds, *lengths, each.error),
                    )
                )
    columns = (
        *(*SETTING, "seed", "sleep", "rollouts", "llm_calls", "accepted", "refused", "uncached", "cached"),
        *("output", "cost_usd", "seconds", "prefix_before", "prefix_after", "prefix_invalidated", "error"),
    )
    text = (
        "Sleeps: edits accepted and refused, tokens, USD, and how many tokens of the prompt prefix before it"
        " each sleep made invalid."
    )
    return Table("sleeps", text, columns, rows)


def _skills(groups: Sequence[Group]) -> Table:
    fields = SkillCost.__struct_fields__
    rows: list[tuple[Cell, ...]] = [
        (*_name(group), run.seed, *(_cell(getattr(each, name)) for name in fields))
        for group in groups
        for run in group.runs
        for each in run.skills
    ]
    text = (
        "Skills: the sleeps that wrote, last changed and removed each, its share of their tokens and USD, the"
        " tokens of its schema in each prompt, calls by the actor and by other skills, primitive actions that"
        " the actor did not have to call itself, and the training episode after which it had saved more than"
        " it had cost."
    )
    return Table("skills", text, (*SETTING, "seed", *fields), rows)


def _name(group: Group) -> tuple[str, str, str]:
    return group.setting.env, group.setting.method, group.setting.model


def _cell(value: Cell | bool) -> Cell:
    return int(value) if isinstance(value, bool) else value
