"""Results of runs without the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pandas

from envs import Task
from serving.usage import Usage
from speedrunner.config.condition import Choice, ConditionId, ModelVariant, Treatment
from speedrunner.config.schema import ClassConfig, Config, ModelOptions, RunConfig
from speedrunner.results.frames import frame_episodes
from speedrunner.results.libraries import LibraryStatistics
from speedrunner.results.means import RULES, SPENT, average_tests
from speedrunner.results.paper import ENVS, TREATMENTS
from speedrunner.results.pricing import PriceBook
from speedrunner.results.run_result import LIBRARY, RunResult
from speedrunner.results.skill_table import SkillHistory, frame_skills
from speedrunner.store.records import EpisodeRow, Termination

EMPTY = LibraryStatistics(0, 0, None, 0.0, None, None)
NO_SKILLS, NO_EPISODES = frame_skills(SkillHistory({}, [], {})), frame_episodes([])
USUAL = {"score": 0.5, "llm_calls": 10.0, "actions": 20.0, "uncached": 100.0, "cached": 900.0, "output": 40.0,
         "usd": 0.01}  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        values: of the scored test episodes, where they differ from the usual ones.
        unscored: test episodes without a score.
        spent: on training until then, by class of tokens and USD; unknown if missing.
    """

    rollouts: int
    values: Sequence[Mapping[str, float]]
    unscored: int = 0
    sleep_usd: float = 0.0
    library: LibraryStatistics = field(default=EMPTY)
    spent: Mapping[str, float] = field(default_factory=dict)


def checkpoint(rollouts: int, values: Sequence[Mapping[str, float]], **more: object) -> Evaluation:
    return Evaluation(rollouts, values, **more)  # type: ignore[arg-type]


def summary(
    env: str | Choice = "babyai",
    method: str | Treatment = "react",
    seed: int = 0,
    *points: Evaluation,
    model: str | ModelVariant = "tiny-random",
    unfinished: Sequence[int] = (),
    **run: object,
) -> RunResult:
    """One run. Names of the paper's environments and treatments stand for their records."""
    name = f"{env}-{method}-{model}-seed{seed}"
    variant = model if isinstance(model, ModelVariant) else ModelVariant(model)
    treatment = method if isinstance(method, Treatment) else TREATMENTS.get(method, Treatment(Choice(method)))
    config = Config(
        run=msgspec.structs.replace(RunConfig(dir=name, seed=seed, wall_clock="all"), **run),
        env=ClassConfig(str(env).partition("-")[0]),
        method=ClassConfig(treatment.method.name),
        model=ModelOptions(variant.name, prefix_caching=None if variant.has_cache else False),
    )
    key = repr(points)
    if key not in _FRAMES:
        _FRAMES[key] = _frame(points)
    episodes, checkpoints = (frame.copy() for frame in _FRAMES[key])
    return RunResult(
        path=f"runs/{name}",
        config=config,
        condition=ConditionId(
            env if isinstance(env, Choice) else ENVS.get(env, (Choice(env),))[0],
            msgspec.structs.replace(treatment, wording=config.run.wording),
            variant,
        ),
        book=PriceBook("a list", None),
        checkpoints=checkpoints,
        unfinished=list(unfinished),
        episodes=episodes,
        sleeps=pandas.DataFrame(),
        skills=NO_SKILLS.copy(),
    )


_FRAMES: dict[str, tuple[pandas.DataFrame, pandas.DataFrame]] = {}
"""Episodes and checkpoints, by the text of their evaluations: many runs of tests equal each other."""


def _frame(points: Sequence[Evaluation]) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    episodes = pandas.concat([NO_EPISODES, *map(_episodes, points)], ignore_index=True)
    checkpoints = average_tests(episodes, planned=1)
    by_rollouts = {point.rollouts: point for point in points}
    found = [by_rollouts[rollouts] for rollouts in checkpoints.index]
    checkpoints["sleep_usd"] = [point.sleep_usd for point in found]
    checkpoints["cost_usd"] = checkpoints["actor_usd"] + checkpoints["sleep_usd"]
    for rule in RULES:
        checkpoints[[f"sleep_usd_{rule}", f"cost_usd_{rule}"]] = checkpoints[["sleep_usd", "cost_usd"]]
        episodes[f"usd_{rule}"] = episodes["usd"]
    checkpoints["rollout_usd"] = float("nan")
    for amount in SPENT:
        checkpoints[f"training_{amount}"] = [point.spent.get(amount, float("nan")) for point in found]
    checkpoints["notes"] = False
    libraries = [msgspec.structs.astuple(point.library) for point in found]
    table = pandas.DataFrame(libraries, checkpoints.index, [*LIBRARY])
    return episodes, checkpoints.join(table.astype(float))


def _episodes(point: Evaluation) -> pandas.DataFrame:
    frame = frame_episodes([_row(point, number) for number in range(len(point.values) + point.unscored)])
    scored = pandas.DataFrame([USUAL | {**values} for values in point.values])
    for name in scored:
        frame[name] = [*scored[name], *frame[name].iloc[len(scored) :]]
    return frame


def _row(point: Evaluation, number: int) -> EpisodeRow:
    is_scored = number < len(point.values)
    return EpisodeRow(
        episode=f"test/{point.rollouts:04d}/{number:04d}",
        phase="test",
        checkpoint=point.rollouts,
        task=Task("world", "go", number),
        policy=0,
        attempt=1,
        termination=Termination.SUBMITTED if is_scored else Termination.ENGINE_ERROR,
        score=0.5 if is_scored else None,
        success=None,
        llm_calls=10,
        actions=20,
        skill_calls=0,
        invalid_calls=0,
        repeated_calls=0,
        usage=Usage(),
        seconds=1.0,
    )
