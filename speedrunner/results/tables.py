"""The tables of results: group-bys over the frames of runs. docs/results.md describes each."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from speedrunner.results.break_even import UNPRICED, break_even_table
from speedrunner.results.cache_effects import cache_table, share_table
from speedrunner.results.checkpoints import CUT, LIMITS, SPENT
from speedrunner.results.conditions import DAGGER, KEYS, TOO_MANY, Condition, stack_frames
from speedrunner.results.inference import CONFIDENCE, RESAMPLES, bootstrap_seeds
from speedrunner.results.run_result import LIBRARY
from speedrunner.results.seed_tests import TESTED, make_test_tables
from speedrunner.results.skill_savings import CAPTION
from speedrunner.results.writing import Table, table_of

MEASURES = (
    *("score", "llm_calls", "actions", "repeated_calls", "uncached", "cached", "output", "cost_usd"),
    "thought_cut",
)
"""Per test episode; tokens are those of all roles, without wasted requests. `thought_cut` is a share of the
answers."""

COUNTS = ("episodes", "unscored", "silent")
TRAINING = tuple(f"training_{name}" for name in SPENT)
CONDITION = [*KEYS, "checkpoint"]


def make_tables(conditions: Sequence[Condition], *, prices: str, corrected: bool) -> list[Table]:
    """Return the tables of some runs.

    Args:
        prices: name of the price list, for captions.
        corrected: whether p-values are corrected by Holm's procedure.
    """
    checkpoints = stack_frames(conditions, "checkpoints")
    return [
        _performance(checkpoints, prices),
        _seeds(checkpoints),
        _training(checkpoints, prices),
        break_even_table(conditions, prices),
        _intervals(conditions),
        *make_test_tables(conditions, corrected),
        share_table(conditions),
        cache_table(conditions),
        _libraries(checkpoints),
        _terminations(stack_frames(conditions, "episodes")),
        _sleeps(stack_frames(conditions, "sleeps")),
        _skills(stack_frames(conditions, "skills")),
        _savings(stack_frames(conditions, "savings")),
    ]


def average_seeds(frame: pandas.DataFrame, columns: Sequence[str]) -> pandas.DataFrame:
    """Return, by condition and checkpoint, `seeds` (the number with a value in the first column), then each
    column's mean over seeds and `NAME_std`, the sample's standard deviation."""
    by = frame.groupby(CONDITION)[[*columns]]
    found = by.mean().join(by.std().add_suffix("_std"))
    found.insert(0, "seeds", by.count()[columns[0]])
    return found[["seeds", *(name for column in columns for name in (column, f"{column}_std"))]]


def _performance(checkpoints: pandas.DataFrame, prices: str) -> Table:
    means = average_seeds(checkpoints, MEASURES)
    ended = checkpoints[[*LIMITS]].mul(checkpoints["episodes"], axis=0)
    sums = checkpoints.assign(**ended).groupby(CONDITION)[[*COUNTS, *LIMITS]].sum()
    shares = sums[[*LIMITS]].div(sums["episodes"], axis=0)
    found = means[["seeds"]].join([sums[[*COUNTS]], shares, means.drop(columns="seeds")])
    flagged = frozenset((shares[[*CUT]].sum(axis=1) > TOO_MANY).to_numpy().nonzero()[0].tolist())
    text = (
        "Means at each checkpoint (number of training rollouts): over the test episodes of a seed,"
        " then mean and standard deviation over seeds, of score, LLM calls, primitive actions, repeated"
        " calls, tokens (uncached and cached prompt, output) and USD per test episode. Unscored episodes"
        " ended by an infrastructure error and are excluded from means. Silent ones sent no request: their"
        f" score counts; calls, tokens and USD are in no mean. {', '.join(LIMITS)}: shares of test episodes"
        " that these limits ended. thought_cut: share of the actor's answers whose thinking was closed at its"
        " budget. USD includes the cost of sleeps, spread over the rollouts since the previous checkpoint."
        f" Prices: {prices}.{DAGGER}"
    )
    return table_of("performance", text, found.reset_index(), flagged)


def _seeds(checkpoints: pandas.DataFrame) -> Table:
    ordered = checkpoints.sort_values([*KEYS, "checkpoint", "seed"])
    text = "The values of each seed; the table performance has their means."
    columns = [*KEYS, "seed", "checkpoint", *COUNTS, *LIMITS, *MEASURES, *TRAINING]
    return table_of("seeds", text, ordered[columns])


def _training(checkpoints: pandas.DataFrame, prices: str) -> Table:
    found = average_seeds(checkpoints, (*TRAINING, "rollout_usd"))
    text = (
        "The spend on training, induction included: tokens (uncached and cached prompt, output) and USD of"
        " all rollouts until the checkpoint (training_NAME), and USD per rollout since the previous one"
        " (rollout_usd). All roles count (actor, curriculum, critic, programmer, optimizer, inducer),"
        " a sleep in equal shares for the rollouts of its batch. Mean and standard deviation over seeds."
        f" {UNPRICED} Prices: {prices}."
    )
    trained = found[[*TRAINING]].fillna(0.0).to_numpy().any(axis=1)
    return table_of("training", text, found[trained].reset_index())


def _intervals(conditions: Sequence[Condition]) -> Table:
    rows = []
    for condition in conditions:
        names = dict(zip(KEYS, condition.names, strict=True))
        for point in condition.points:
            for metric in TESTED:
                values = condition.values(point, "usd" if metric == "cost_usd" else metric)
                found = bootstrap_seeds(values)
                if found is not None:
                    seeds = sum(map(bool, values.values()))
                    around = (found.mean, found.low, found.high)
                    rows.append((*names.values(), point, metric, seeds, found.count, *around))
    text = (
        f"Means over seeds of the means over test episodes, with {CONFIDENCE:.0%} percentile bootstrap"
        f" intervals that resample seeds, then episodes within each ({RESAMPLES} resamples;"
        " too narrow below five seeds); of one seed, only its episodes. USD of the test episodes only."
    )
    columns = [*KEYS, "checkpoint", "metric", "seeds", "episodes", "mean", "low", "high"]
    return table_of("intervals", text, pandas.DataFrame(rows, columns=columns))


def _libraries(checkpoints: pandas.DataFrame) -> Table:
    found = average_seeds(checkpoints, LIBRARY)
    text = (
        "Libraries (Appendix H): functions, edges on the longest path of the call graph, mean depth, density"
        " without self-edges, mean cyclomatic complexity, share of functions about combat; mean and standard"
        " deviation over seeds. Functions that call each other in a circle count as one node of a path."
    )
    return table_of("libraries", text, found[found["functions"] > 0].reset_index())


def _terminations(episodes: pandas.DataFrame) -> Table:
    where = [*KEYS, "phase", "checkpoint"]
    found = episodes.groupby([*where, "termination"]).size().rename("episodes").reset_index()
    found["of"] = found.groupby(where)["episodes"].transform("sum")
    found["share"] = found["episodes"] / found["of"]
    cut = found["termination"].isin(CUT) & (found["share"] > TOO_MANY)
    found["flag"] = cut.map({True: "too many", False: ""})
    text = f"How episodes ended; a training batch is identified by the rollouts before it.{DAGGER}"
    return table_of("terminations", text, found, frozenset(cut.to_numpy().nonzero()[0].tolist()))


def _sleeps(sleeps: pandas.DataFrame) -> Table:
    text = (
        "Sleeps: edits accepted and refused, tokens, USD, and how many tokens of the prompt prefix each sleep"
        " invalidated. thought_cut: share of the inducer's (or optimizer's) answers whose thinking was closed"
        " at its budget."
    )
    return table_of("sleeps", text, sleeps.drop(columns="run"))


def _skills(skills: pandas.DataFrame) -> Table:
    text = (
        "Skills: the sleeps that wrote, last changed and removed each, its share of their tokens and USD, the"
        " tokens of its schema in each prompt, calls by the actor and by other skills, primitive actions that"
        " the actor did not have to call itself, and the training episode after which it had saved more than"
        " it had cost."
    )
    return table_of("skills", text, skills.drop(columns="run"))


def _savings(savings: pandas.DataFrame) -> Table:
    ordered = savings.sort_values([*KEYS, "seed", "output"], ascending=[True] * 4 + [False])
    return table_of("skill_savings", CAPTION, ordered.drop(columns="run"))
