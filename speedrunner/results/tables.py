"""The tables of results: group-bys over the frames of runs. docs/results.md describes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas

from speedrunner.results.conditions import DAGGER, KEYS, REACT, TOO_MANY, Condition, has_cache, stack_frames
from speedrunner.results.means import CONDITION, average_seeds, mean_sd, spread
from speedrunner.results.measures import AVERAGED, COUNTS, CUT, LIMITS, TRAINING
from speedrunner.results.pairing import make_test_tables
from speedrunner.results.run_result import LIBRARY
from speedrunner.results.writing import Cell, Table, table_of

UNPRICED = (
    "USD are empty if a model has no price, and 0 if its prices are zero, as those of open models are:"
    " speedrunner report DIR --prices NAME prices the same tokens by another list."
)
"""The end of a caption of USD."""


def make_tables(conditions: Sequence[Condition], prices: str) -> list[Table]:
    """Return the tables of some runs.

    Args:
        prices: name of the price list, for captions.
    """
    checkpoints = stack_frames(conditions, "checkpoints")
    return [
        _performance(checkpoints, prices),
        _seeds(checkpoints),
        _training(checkpoints, prices),
        *make_test_tables(conditions),
        _cache(conditions),
        _libraries(checkpoints),
        _ratios(checkpoints),
        _skills(stack_frames(conditions, "skills")),
    ]


def _performance(checkpoints: pandas.DataFrame, prices: str) -> Table:
    means = average_seeds(checkpoints, AVERAGED)
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
        " budget. USD includes the cost of sleeps, spread over the rollouts since the previous checkpoint,"
        " and of prefix warm-ups; cost_usd_cold: with the first prompt of each episode and sleep uncached."
        f" Prices: {prices}.{DAGGER}"
    )
    return table_of("performance", text, found.reset_index(), flagged)


def _seeds(checkpoints: pandas.DataFrame) -> Table:
    ordered = checkpoints.sort_values([*KEYS, "checkpoint", "seed"])
    text = "The values of each seed; the table performance has their means."
    columns = [*KEYS, "seed", "checkpoint", *COUNTS, *LIMITS, *AVERAGED, *TRAINING]
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


def _cache(conditions: Sequence[Condition]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for uncached in (each for each in conditions if not has_cache(each)):
        sources = {(run.config.run.start_from or "").rpartition("/")[2] for run in uncached.runs.values()}
        for cached in conditions:
            if not sources.isdisjoint(run.path.rpartition("/")[2] for run in cached.runs.values()):
                rows += _compare_caches(cached, uncached)
    text = (
        "The same policies on a server with and without prefix cache: means over test episodes, then"
        " over the seeds that have both; USD of the test episodes only. Ratio: with over without."
    )
    return Table("cache", text, [*KEYS, "measure", "seeds", "with_cache", "without_cache", "ratio"], rows)


def _compare_caches(cached: Condition, uncached: Condition) -> Iterator[tuple[Cell, ...]]:
    pairs = [(run, uncached.runs[seed]) for seed, run in cached.runs.items() if seed in uncached.runs]
    whole = [pair for pair in pairs if all(run.points for run in pair)]
    for name in ("score", "uncached", "cached", "output", "actor_usd"):
        found = (spread(pair[side].checkpoints[name].iloc[-1] for pair in whole) for side in (0, 1))
        with_, without = (mean_sd(each)[0] for each in found)
        ratio = with_ / without if with_ is not None and without else None
        yield *cached.names, name, len(whole), with_, without, ratio


def _libraries(checkpoints: pandas.DataFrame) -> Table:
    found = average_seeds(checkpoints, LIBRARY)
    text = (
        "Libraries (Appendix H): functions, edges on the longest path of the call graph, mean depth, density"
        " without self-edges, mean cyclomatic complexity, share of functions about combat; mean and standard"
        " deviation over seeds. Functions that call each other in a circle count as one node of a path."
    )
    return table_of("libraries", text, found[found["functions"] > 0].reset_index())


def _ratios(checkpoints: pandas.DataFrame) -> Table:
    last = checkpoints.sort_values("checkpoint").groupby([*KEYS, "seed"]).last().reset_index()
    actor = last["model"].str.replace(r"-inducer_thinking\d+", "", regex=True)  # ReAct has no inducer
    react = last[last["method"] == REACT].set_index(["env", "model", "seed"])["output"]
    last["react"] = [react.get(key) for key in zip(last["env"], actor, last["seed"], strict=True)]
    last["ratio"] = last["output"] / last["react"].astype(float)
    known = last[last["ratio"].notna() & (last["method"] != REACT)]
    text = (
        "Output tokens of a test episode at the last checkpoint divided by ReAct's with the same actor, seed"
        " by seed: mean and standard deviation over seeds. A thinking budget of the actor bounds ReAct's."
    )
    found = known.groupby([*KEYS])["ratio"].agg(seeds="size", ratio="mean", ratio_std="std")
    return table_of("output_ratios", text, found.reset_index())


def _skills(skills: pandas.DataFrame) -> Table:
    text = (
        "Skills: the sleeps that wrote, last changed and removed each, calls by the actor and by other"
        " skills, failed calls, primitive actions in the actor's calls, LLM calls that these saved (actions"
        " minus calls), and the mean score of the episodes with such a call."
    )
    return table_of("skills", text, skills.drop(columns="run"))
