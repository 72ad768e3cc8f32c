"""The quantities of the paper's numbers: how each is computed from the frames of runs.

docs/results.md describes each. Most use the last checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from speedrunner.results.run_result import RunResult
from speedrunner.results.series import PLACES

NAME_WORDS = 4
"""Words at the start of a function's name that near-identical functions share: `collect_one_wood_log_...`."""

RETURNED = "{0}-from_scienceworld-family4-{0}-from_scienceworld-family3"
"""A method's evaluation on ScienceWorld 3 after training on 4 as well."""

Find = Callable[[str, str], Mapping[int, RunResult]]
"""Returns the runs of an environment and method, by seed."""

Quantity = Callable[[Find, str, str], Mapping[int, float | None]]
"""Returns a value of an environment and method, by seed."""


def _each_seed(value: Callable[[RunResult], float | None]) -> Quantity:
    return lambda find, env, method: {seed: value(run) for seed, run in find(env, method).items()}


def _mean(run: RunResult, measure: str, point: int | None = None) -> float | None:
    """Return a column of a run's checkpoint, the last one by default."""
    column = run.checkpoints[measure].dropna()
    if point is None:
        return float(column.iloc[-1]) if len(column) else None
    return float(column[point]) if point in column.index else None


def _mean_percent(measure: str, point: int | None = None) -> Quantity:
    return _each_seed(lambda run: _times(_mean(run, measure, point), 100))


def _combat_functions(run: RunResult) -> float | None:
    combat, functions = _mean(run, "combat"), _mean(run, "functions")
    return None if combat is None or functions is None else combat * functions


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _compare_methods(measure: str, other: str, form: Callable[[float, float], float | None]) -> Quantity:
    """Compare a method's runs with those of another method with the same seeds, by the measure `measure`.

    Args:
        other: the other method's name; `{0}` stands for the first one's.
    """

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        theirs = find(env, other.format(method))
        found: dict[int, float | None] = {}
        for seed, run in find(env, method).items():
            if seed in theirs:
                own, their = _mean(run, measure), _mean(theirs[seed], measure)
                found[seed] = None if own is None or their is None else form(own, their)
        return found

    return quantity


def _ratio(own: float, other: float) -> float | None:
    return own / other if other else None


def _inverse_ratio(own: float, other: float) -> float | None:
    return _ratio(other, own)


def _percent(own: float, other: float) -> float | None:
    return 100 * (own / other - 1) if other else None


def _change_of_calls(run: RunResult) -> float | None:
    first, last = _mean(run, "llm_calls", 0), _mean(run, "llm_calls")
    return None if first is None or last is None else _percent(last, first)


def _prefer_truncated(value: Callable[[RunResult], float | None]) -> Quantity:
    """Use the seeds with a truncated library, or all seeds if there are none."""

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        truncated = find(env, f"{method}-visible_last50-from_{env}")
        runs = find(env, method)
        return {seed: value(run) for seed, run in runs.items() if seed in truncated or not truncated}

    return quantity


def _find_best(find: Find, env: str, method: str) -> dict[int, RunResult]:
    """Return the run with the highest last score, by its seed; the first one of equals."""
    scores = {
        seed: score for seed, run in find(env, method).items() if (score := _mean(run, "score")) is not None
    }
    best = max(scores, key=lambda seed: scores[seed], default=None)
    return {} if best is None else {best: find(env, method)[best]}


def _of_best(value: Callable[[RunResult], float | None]) -> Quantity:
    return lambda find, env, method: {seed: value(run) for seed, run in _find_best(find, env, method).items()}


def _unsolved(run: RunResult) -> float | None:
    score = _mean(run, "score")
    return None if score is None else 100 * (1 - score)


def _count_variants(run: RunResult) -> float | None:
    """Return the most functions of the final library whose names start with the same `NAME_WORDS` words."""
    names = run.skills["skill"][run.skills["removed"].isna()]
    starts = Counter("_".join(name.strip("_").split("_")[:NAME_WORDS]) for name in names)
    return float(max(starts.values(), default=0)) or None


def _best_to_interpreter_off(find: Find, env: str, method: str) -> dict[int, float | None]:
    own = _find_best(find, env, method)
    others = _find_best(find, env, f"{method}-no-interpreter").values()
    return {
        seed: None if first is None or second is None else _percent(first, second)
        for seed, run in own.items()
        for other in others
        for first, second in [(_mean(run, "functions"), _mean(other, "functions"))]
    }


def _rank_calls(measure: str, share: float) -> Quantity:
    """Return the value of one seed: with `share` 0 the smallest, 0.5 the middle one, 1 the largest."""

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        values = {seed: _mean(run, measure) for seed, run in find(env, method).items()}
        ranked = sorted((value, seed) for seed, value in values.items() if value is not None)
        chosen = ranked[int(share * (len(ranked) - 1))] if ranked else None
        return {} if chosen is None else {chosen[1]: chosen[0]}

    return quantity


def _calls_per_batch(choose: Callable[[list[float]], float]) -> Quantity:
    """Choose among the calls per batch of the most called skill, in the later half of the batches."""

    def value(run: RunResult) -> float | None:
        batches = sorted(run.episodes["policy"][run.episodes["phase"] == "train"].unique())
        later = batches[len(batches) // 2 :]
        calls = run.skill_calls[run.skill_calls["batch"].isin(later)]
        if calls.empty:
            return None
        most = calls.groupby("skill")["calls"].sum().idxmax()
        by_batch = calls[calls["skill"] == most].groupby("batch")["calls"].sum()
        return float(choose(by_batch.reindex(later, fill_value=0).tolist()))

    return _each_seed(value)


def _share_dominated(find: Find, env: str, method: str) -> dict[int, float | None]:
    """Return the share of the paper's environments in which a method dominates every other one, in percent:
    no worse in score and output tokens, and better in one of them."""
    shares: dict[int, list[bool]] = {}
    for envs in PLACES.values():
        others = [name for name in ("react", "opo", "asi") if name != method]
        others += ["voyager"] if envs == PLACES["Crafter"] else []
        points = {name: _score_and_output(find, envs, name) for name in (method, *others)}
        for seed in set.intersection(*(set(own) for own in points.values())):
            score, output = points[method][seed]
            rest = [points[name][seed] for name in others]
            wins = all(
                score >= other and output <= theirs and (score, output) != (other, theirs)
                for other, theirs in rest
            )
            shares.setdefault(seed, []).append(wins)
    return {seed: 100 * sum(wins) / len(wins) for seed, wins in shares.items() if len(wins) == len(PLACES)}


def _score_and_output(find: Find, envs: tuple[str, ...], method: str) -> dict[int, tuple[float, float]]:
    """Return the means over environments of last score and output tokens, for the seeds with all of them."""
    runs = [find(env, method) for env in envs]
    found = {}
    for seed in set.intersection(*(set(own) for own in runs)):
        scores = [_mean(own[seed], "score") for own in runs]
        outputs = [_mean(own[seed], "output") for own in runs]
        if None not in scores and None not in outputs:
            found[seed] = sum(filter(None, scores)) / len(runs), sum(filter(None, outputs)) / len(runs)
    return found


QUANTITIES: dict[str, Quantity] = {
    **{
        name: _each_seed(partial(_mean, measure=name))
        for name in (
            *("functions", "max_depth", "mean_depth", "density", "cyclomatic"),
            *("score", "output", "cost_usd"),
        )
    },
    "combat_percent": _mean_percent("combat"),
    "combat_functions": _each_seed(_combat_functions),
    "score_percent": _mean_percent("score"),
    "score_percent_at_0": _mean_percent("score", 0),
    "score_without_library": _prefer_truncated(lambda run: _mean(run, "score", 0)),
    "score_with_whole_library": _prefer_truncated(lambda run: _mean(run, "score")),
    "unsolved_percent_of_best_seed": _of_best(_unsolved),
    "functions_of_best_seed": _of_best(lambda run: _mean(run, "functions")),
    "variants_of_best_seed": _of_best(_count_variants),
    "functions_of_best_seed_percent_to_interpreter_off": _best_to_interpreter_off,
    **{
        f"public_{name}": _rank_calls("public", share)
        for name, share in (("smallest", 0.0), ("middle", 0.5), ("largest", 1.0))
    },
    "edited_combat_functions": _each_seed(partial(_mean, measure="edited_combat")),
    "calls_a_batch_least": _calls_per_batch(min),
    "calls_a_batch_most": _calls_per_batch(max),
    "dominated_settings_percent": _share_dominated,
    "llm_calls_change_percent": _each_seed(_change_of_calls),
    "output_of_react": _compare_methods("output", "react", _ratio),
    "asi_output_ratio": _compare_methods("output", "asi", _inverse_ratio),
    "opo_output_ratio": _compare_methods("output", "opo", _inverse_ratio),
    "output_percent_to_asi": _compare_methods("output", "asi", _percent),
    "output_percent_to_asi_replay": _compare_methods("output", "asi_replay", _percent),
    "retention_points": _compare_methods("score", RETURNED, lambda own, later: 100 * (later - own)),
    "retention_cost_percent": _compare_methods(
        "actor_usd", RETURNED, lambda own, later: _percent(later, own)
    ),
}
"""By name."""
