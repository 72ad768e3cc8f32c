"""Summaries of runs without the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from envs import Task
from speedrunner.config.names import Setting
from speedrunner.config.schema import ClassConfig, Config, ModelConfig, RunConfig
from speedrunner.results.libraries import LibraryStatistics
from speedrunner.results.run_result import Checkpoint, Summary, Tested

EMPTY = LibraryStatistics(0, 0, None, 0.0, None, None)
USUAL = {"score": 0.5, "llm_calls": 10.0, "actions": 20.0, "uncached": 100.0, "cached": 900.0, "output": 40.0,
         "cost_usd": 0.01}  # fmt: skip


def checkpoint(
    rollouts: int,
    values: Sequence[Mapping[str, float]],
    *,
    unscored: int = 0,
    sleep_usd: float = 0.0,
    library: LibraryStatistics = EMPTY,
) -> Checkpoint:
    """An evaluation whose test episodes had these values, where they are not the usual ones."""
    tested = [
        Tested(f"{number:04d}", Task("world", "go", number), {**USUAL, **each})
        for number, each in enumerate(values)
    ]
    return Checkpoint(rollouts, len(tested) + unscored, tested, sleep_usd, None, library)


def summary(
    env: str = "babyai",
    method: str = "react",
    seed: int = 0,
    *checkpoints: Checkpoint,
    model: str = "tiny-random",
    unfinished: Sequence[int] = (),
    wall_clock: int = 0,
    **run: object,
) -> Summary:
    """One run; `wall_clock` of 100 test episodes at each checkpoint were ended by it."""
    name = f"{env}-{method}-{model}-seed{seed}"
    config = Config(
        run=msgspec.structs.replace(RunConfig(dir=name, seed=seed), **run),
        env=ClassConfig(env.partition("-")[0]),
        method=ClassConfig(method.partition("-")[0]),
        model=ModelConfig(model),
    )
    endings = Counter(
        {(*("test", each.rollouts), ending): count
         for each in checkpoints
         for ending, count in (("wall_clock", wall_clock), ("submitted", 100 - wall_clock))}
    )  # fmt: skip
    return Summary(
        path=f"runs/{name}",
        config=config,
        setting=Setting(env, method, model),
        prices="a list",
        checkpoints={each.rollouts: each for each in checkpoints},
        unfinished=list(unfinished),
        endings=endings,
        sleeps=[],
        skills=[],
        processes=[],
        taken={},
        servers=[],
    )
