"""The tables of results: group-bys over the frames of runs. docs/results.md describes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas

from speedrunner.results.conditions import KEYS, REACT, TOO_MANY, Condition, has_cache, stack_frames
from speedrunner.results.means import CONDITION, average_seeds, mean_sd, spread
from speedrunner.results.measures import AVERAGED, COUNTS, CUT, LIMITS, TRAINING
from speedrunner.results.pairing import make_test_tables
from speedrunner.results.run_result import LIBRARY
from speedrunner.results.writing import Cell, Table, caption, table_of


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
        table_of("skills", caption("skills"), stack_frames(conditions, "skills").drop(columns="run")),
    ]


def _performance(checkpoints: pandas.DataFrame, prices: str) -> Table:
    means = average_seeds(checkpoints, AVERAGED)
    ended = checkpoints[[*LIMITS]].mul(checkpoints["episodes"], axis=0)
    sums = checkpoints.assign(**ended).groupby(CONDITION)[[*COUNTS, *LIMITS]].sum()
    shares = sums[[*LIMITS]].div(sums["episodes"], axis=0)
    found = means[["seeds"]].join([sums[[*COUNTS]], shares, means.drop(columns="seeds")])
    flagged = frozenset((shares[[*CUT]].sum(axis=1) > TOO_MANY).to_numpy().nonzero()[0].tolist())
    text = caption("performance", limits=", ".join(LIMITS), prices=prices, too_many=TOO_MANY)
    return table_of("performance", text, found.reset_index(), flagged)


def _seeds(checkpoints: pandas.DataFrame) -> Table:
    ordered = checkpoints.sort_values([*KEYS, "checkpoint", "seed"])
    columns = [*KEYS, "seed", "checkpoint", *COUNTS, *LIMITS, *AVERAGED, *TRAINING]
    return table_of("seeds", caption("seeds"), ordered[columns])


def _training(checkpoints: pandas.DataFrame, prices: str) -> Table:
    found = average_seeds(checkpoints, (*TRAINING, "rollout_usd"))
    trained = found[[*TRAINING]].fillna(0.0).to_numpy().any(axis=1)
    return table_of("training", caption("training", prices=prices), found[trained].reset_index())


def _cache(conditions: Sequence[Condition]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for uncached in (each for each in conditions if not has_cache(each)):
        sources = {(run.config.run.start_from or "").rpartition("/")[2] for run in uncached.runs.values()}
        for cached in conditions:
            if not sources.isdisjoint(run.path.rpartition("/")[2] for run in cached.runs.values()):
                rows += _compare_caches(cached, uncached)
    return Table(
        "cache", caption("cache"), [*KEYS, "measure", "seeds", "with_cache", "without_cache", "ratio"], rows
    )


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
    return table_of("libraries", caption("libraries"), found[found["functions"] > 0].reset_index())


def _ratios(checkpoints: pandas.DataFrame) -> Table:
    last = checkpoints.sort_values("checkpoint").groupby([*KEYS, "seed"]).tail(1).copy()
    actor = last["model"].str.replace(r"-inducer_thinking\d+", "", regex=True)  # ReAct has no inducer
    own = REACT + last["method"].str.extract(r"(-wording\d)", expand=False).fillna("")  # the same wording
    react = last[last["method"] == own].set_index(["env", "model", "method", "seed"])["output"]
    last["react"] = [react.get(key) for key in zip(last["env"], actor, own, last["seed"], strict=True)]
    last["ratio"] = last["output"] / last["react"].astype(float)
    known = last[last["ratio"].notna() & (last["method"] != own)]
    found = known.groupby([*KEYS])["ratio"].agg(seeds="size", ratio="mean", ratio_std="std")
    return table_of("output_ratios", caption("output_ratios"), found.reset_index())
