"""The quantities of the paper's tables: how each is computed from the checkpoints of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speedrunner.results.run_result import RunResult

Find = Callable[[str, str], Mapping[int, RunResult]]
"""Returns the runs of an environment and method, by seed."""

Quantity = Callable[[Find, str, str], Mapping[int, float | None]]
"""Returns a value of an environment and method, by seed."""


def _last(measure: str, factor: float = 1.0) -> Quantity:
    """Return a column of the last checkpoint that has it."""

    def quantity(find: Find, env: str, method: str) -> dict[int, float | None]:
        known = {seed: run.checkpoints[measure].dropna() for seed, run in find(env, method).items()}
        return {seed: factor * float(own.iloc[-1]) if len(own) else None for seed, own in known.items()}

    return quantity


def _first_score(find: Find, env: str, method: str) -> dict[int, float | None]:
    """Return the scores before training."""
    return {seed: run.average("score").get(0) for seed, run in find(env, method).items()}


def _prefer_truncated(quantity: Quantity) -> Quantity:
    """Use the seeds with a truncated library, or all seeds if there are none."""

    def chosen(find: Find, env: str, method: str) -> dict[int, float | None]:
        truncated = find(env, f"{method}-visible_last50-from_{env}")
        values = quantity(find, env, method)
        return {seed: value for seed, value in values.items() if seed in truncated or not truncated}

    return chosen


QUANTITIES: dict[str, Quantity] = {
    **{
        name: _last(name)
        for name in (
            *("functions", "max_depth", "mean_depth", "density", "cyclomatic"),
            *("score", "output", "cost_usd"),
        )
    },
    "combat_percent": _last("combat", 100.0),
    "score_without_library": _prefer_truncated(_first_score),
    "score_with_whole_library": _prefer_truncated(_last("score")),
}
"""By name."""
