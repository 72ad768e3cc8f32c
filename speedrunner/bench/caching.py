"""What the prefix cache saves a learning agent, before and after it has learned: `speedrunner bench caching`.

Recorded evaluations are played once more with forced answers, under three treatments that differ by the
requests' `cache_salt` alone:

- `warm`: all requests share the cache;
- `within`: an episode finds only its own requests there;
- `none`: a request finds nothing.

A block plays the evaluation of one checkpoint under one treatment. Blocks come in a random order, then in the
reverse order, so that a drift of the machine does not favour a treatment.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from random import Random
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import pandas

from serving.engine.client import EngineResponse, run_together
from serving.engine.one_try import TokenCompletion
from serving.model import Model
from serving.usage import Usage
from speedrunner.bench.engine import cache_of, completions_api, open_engine
from speedrunner.bench.forced_answers import keep_actor, open_conversation, play_forced
from speedrunner.bench.measurement import MeasuredTable, Measurement
from speedrunner.bench.token_units import TokenMeter
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import Status
from speedrunner.results.inference import estimate_independent
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData

Treatment = Literal["warm", "within", "none"]


class Block(NamedTuple):
    """The evaluation of one checkpoint at a number of episodes in flight."""

    run: RunData
    setup: Setup
    checkpoint: int
    in_flight: int
    episodes: Sequence[Trajectory]


class BlockCost(msgspec.Struct, frozen=True, kw_only=True):
    """The mean cost of an episode in one block.

    Attributes:
        seconds: GPU seconds: wall time, times the number of GPUs. Without a GPU: CPU seconds of the server.
        joules: energy of the GPUs; `None`: not measured.
        first_token_ms: mean time from a request's start in the engine to its first token, over requests.
        cached_share: prompt tokens from the cache, as a share of all.
        disturbed: what else the engine did meanwhile; empty if nothing is known.
    """

    run: str
    environment: str
    method: str
    checkpoint: int
    in_flight: int
    treatment: Treatment
    episodes: int
    requests: int
    seconds: float
    joules: float | None
    first_token_ms: float | None
    cached_share: float
    disturbed: str


COSTS = ("seconds", "joules", "first_token_ms")
"""Measured costs of which the table of savings has the share that a cache saves."""

SAVINGS = (
    *("environment", "method", "in_flight", "cost", "cache", "rollouts", "runs"),
    *("before", "after", "change", "low", "high"),
)
"""Columns of the table of savings."""


async def measure_caching(
    runs: Sequence[tuple[RunData, Setup]], levels: Sequence[int], rounds: int, status: Status
) -> Measurement:
    """Measure the cost of episodes of finished runs under each treatment.

    Args:
        runs: they have the same model.
        levels: episodes in flight.
        rounds: how often the blocks are played, each time in an order and its reverse.

    Raises:
        InvalidConfig: the runs have several models, one without token ids, no two evaluations, or twice the
            same seed.
        RunDirectoryError: an episode's first prompt has another length now.
        StorageError: a run cannot be read.
        ServingError: the engine failed.
    """
    setup = runs[0][1]
    model_config = completions_api(setup.model_config)
    if other := [run.path for run, own in runs if own.model_config.name != model_config.name]:
        raise InvalidConfig(f"{other[0]} has another model than {runs[0][0].path}: name runs of one model")
    refuse_repeats([run for run, _ in runs])
    blocks = [block for run, own in runs for block in list_blocks(run, own, levels)]
    costs, number = list[BlockCost](), 0
    async with (
        open_engine(model_config, setup.config, status) as deployment,
        deployment.client(lambda row: None) as model,
    ):
        if not cache_of(deployment).enable_prefix_caching:
            raise InvalidConfig(
                f"the server of {model_config.name!r} has no prefix cache: nothing to compare"
            )
        meter = TokenMeter(deployment, model)
        for block in (block for block in blocks if block.in_flight == levels[-1]):
            status(f"first pass of {block.run.path.name}, rollout {block.checkpoint}")
            await _play(model, block, "warm")  # compiles the grammars
        for round_ in range(rounds):
            order = [(block, treatment) for block in blocks for treatment in get_args(Treatment)]
            Random(round_).shuffle(order)
            for block, treatment in (*order, *reversed(order)):
                number += 1
                status(f"block {number} of {2 * rounds * len(order)}: {block.run.path.name}, {treatment}")
                costs.append(await _measure(meter, model, block, treatment))
    used = [cost for cost in costs if not cost.disturbed]
    savings = list(compare_savings(used))
    notes = [meter.why_no_joules] if meter.why_no_joules else []
    if len(used) < len(costs):
        notes.append(f"{len(costs) - len(used)} of {len(costs)} blocks were disturbed, and are left out.")
    return Measurement(
        f"{model_config.name}: cost of an episode by what it finds in the prefix cache",
        tables=[
            MeasuredTable("costs", list(_average(used)), title="Mean cost of an episode"),
            MeasuredTable("savings", savings, SAVINGS, title="What caching saves (against none)"),
        ],
        facts={"blocks": costs},
        notes=notes,
    )


def refuse_repeats(runs: Sequence[RunData]) -> None:
    """Raise `InvalidConfig` if two runs have one environment, method and seed: they are no two seeds."""
    found = dict[tuple[str, str, int], RunData]()
    for run in runs:
        condition = identify_condition(run.settings).by_column
        first = found.setdefault((condition["env"], condition["method"], run.settings.run.seed), run)
        if first is not run:
            raise InvalidConfig(
                f"{first.path} and {run.path} have one environment, method and seed"
                f" ({run.settings.run.seed}): name one of them"
            )


def list_blocks(run: RunData, setup: Setup, levels: Sequence[int]) -> Iterator[Block]:
    """Yield the blocks of a run: its first and its last evaluation, at each level."""
    points = sorted({row.checkpoint for row in run.rows if row.phase == "test"})
    if len(points) < 2:
        raise InvalidConfig(f"{run.path} has evaluations at {len(points)} checkpoints, and two are needed")
    for checkpoint in (points[0], points[-1]):
        episodes = [keep_actor(played) for played in run.evaluations(checkpoint)]
        played = [episode for episode in episodes if episode.turns and not episode.termination.is_fault]
        if not played or len(episodes) < run.settings.run.test_episodes:
            raise InvalidConfig(
                f"{run.path} has no whole evaluation at {checkpoint} rollouts: finish the run first"
            )
        yield from (Block(run, setup, checkpoint, level, played) for level in levels)


async def _play(model: Model, block: Block, treatment: Treatment) -> list[EngineResponse[TokenCompletion]]:
    """Force the recorded answers of a block, and return the engine's. Raises `ServingError`,
    `RunDirectoryError`."""
    answers = list[EngineResponse[TokenCompletion]]()
    model.engine.note_response = answers.append
    shared = secrets.token_hex(8)

    async def play_episode(episode: Trajectory) -> None:
        own = secrets.token_hex(8)
        await play_forced(
            open_conversation(block.run, block.setup, model, episode),
            episode,
            model.model_config.context,
            lambda: {"warm": shared, "within": own, "none": secrets.token_hex(8)}[treatment],
        )

    await run_together(play_episode, block.episodes, block.in_flight)
    return answers


async def _measure(meter: TokenMeter, model: Model, block: Block, treatment: Treatment) -> BlockCost:
    answers = list[EngineResponse[TokenCompletion]]()

    async def work() -> Usage:
        answers.extend(await _play(model, block, treatment))
        return sum((answer.usage for answer in answers), Usage())

    spent = await meter.spend(work)
    timings = [timing for answer in answers if (timing := answer.answer.metrics)]
    first_ms = [float(timing.time_to_first_token_ms) for timing in timings if timing.time_to_first_token_ms]
    condition, count = identify_condition(block.run.settings).by_column, len(block.episodes)
    return BlockCost(
        run=str(block.run.path),
        environment=condition["env"],
        method=condition["method"],
        checkpoint=block.checkpoint,
        in_flight=block.in_flight,
        treatment=treatment,
        episodes=count,
        requests=len(answers),
        seconds=spent.seconds / count,
        joules=None if spent.joules is None else spent.joules / count,
        first_token_ms=fmean(first_ms) if first_ms else None,
        cached_share=spent.used.cached / max(spent.used.prompt, 1),
        disturbed=spent.disturbed,
    )


def _frame(costs: Sequence[BlockCost]) -> pandas.DataFrame:
    frame = pandas.DataFrame([msgspec.structs.asdict(cost) for cost in costs])
    return frame.astype({"joules": float, "first_token_ms": float})


def _average(costs: Sequence[BlockCost]) -> Iterator[dict[str, object]]:
    """Yield the means over the blocks of a run, checkpoint, level and treatment."""
    if not costs:
        return
    by = _frame(costs).groupby(["run", "checkpoint", "in_flight", "treatment"])
    means = by[["seconds", "joules", "first_token_ms", "cached_share"]].mean()
    means.insert(0, "blocks", by.size())
    names = {"checkpoint": "rollouts", "treatment": "cache"}
    for row in means.reset_index().rename(columns=names).to_dict("records"):
        yield {str(name): None if value != value else value for name, value in row.items()}


def compare_savings(costs: Sequence[BlockCost]) -> Iterator[dict[str, Any]]:
    """Yield what each cache saves before and after learning, `SAVINGS` by condition, level, cost, cache and
    last checkpoint.

    A saving is 1 - `warm` / `none`, or 1 - `within` / `none`, in one of `COSTS` of a run's checkpoint;
    `by_run` has both of each run. Unmeasured costs have no row. The change over learning is paired
    within a run, with its t interval over runs (seeds); one run has none.
    """
    if not costs:
        return
    keys = ["environment", "method", "in_flight", "run"]
    means: Any = _frame(costs).groupby([*keys, "checkpoint", "treatment"])[[*COSTS]].mean().unstack()
    means = means.reindex(columns=pandas.MultiIndex.from_product([COSTS, get_args(Treatment)]))
    caches = [(cost, cache) for cost in COSTS for cache in get_args(Treatment) if cache != "none"]
    for cost, cache in caches:
        share = means[cost, cache] / means[cost, "none"]
        savings = (1 - share).dropna().rename("saving").reset_index("checkpoint")
        ends = savings.groupby(keys).agg(["first", "last", "size"])
        ends = ends[ends["saving", "size"] > 1]
        groups: Any = ends.groupby([*keys[:-1], ends["checkpoint", "last"]])
        for (*names, rollouts), own in groups:
            before, after = own["saving", "first"], own["saving", "last"]
            pairs = after - before
            change = estimate_independent(pairs)
            low, high = change.ends if change and change.ends else (None, None)
            averages = (float(column.mean()) for column in (before, after, pairs))
            values = (*names, cost, cache, rollouts, len(own), *averages, low, high)
            row = dict(zip(SAVINGS, values, strict=True))
            yield row | {"by_run": [*zip(before.tolist(), after.tolist(), strict=True)]}
