"""The effect of prefix caching by method: `speedrunner bench replay`.

A run's recorded episodes are played twice: with the prefix cache, and with nothing shared between requests.
docs/results.md explains what is played and how both passes are kept fair. Answers are forced to the recorded
ones (`speedrunner.bench.cache_passes`). Then the log-probabilities of some recorded tokens are compared
(`speedrunner.bench.cache_truth`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from serving.deployment import Deployment
from serving.model import Model
from serving.together import run_together
from serving.usage import Prices, Usage
from speedrunner.bench.cache_passes import CachePass, RecordedRun, play_twice, sum_usage
from speedrunner.bench.cache_truth import (
    ForcedToken,
    Positions,
    add_shifts,
    choose_positions,
    compare,
    probe_engine,
    shift_figures,
)
from speedrunner.bench.engine import completions_api, open_engine
from speedrunner.bench.measurement import NOT_MEASURED, Measurement, Table
from speedrunner.bench.player import Forcing, Played, play_script
from speedrunner.config.console import Status
from speedrunner.config.schema import InvalidConfig
from speedrunner.results import writing
from speedrunner.store.files import write_atomic
from speedrunner.store.records import Trajectory

TOKENS = 200
"""Recorded tokens of each method whose log-probabilities are compared, by default."""

RATIOS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Prices of a cached prompt token, as a share of an uncached one's."""


async def compare_tokens(
    deployment: Deployment, runs: Sequence[RecordedRun], tokens: int
) -> list[ForcedToken]:
    """Compare so many recorded tokens with a cached prefix and without. Raises as `play_twice`."""
    found: list[ForcedToken] = []
    salt = secrets.token_hex(8)
    for number, run in enumerate(runs):
        episodes = [each for played in run.episodes().values() for each in played]
        share = tokens // len(runs) + (number < tokens % len(runs))
        answers = {each.episode: [turn.usage.completion for turn in each.turns] for each in episodes}
        chosen = choose_positions(answers, share)
        async with deployment.client(lambda row: None, admission=run.setup.config.serving.admission) as model:
            play = partial(_compare_episode, run, model, salt, chosen, found)
            wanted = [each for each in episodes if each.episode in chosen]
            await run_together(play, wanted, run.in_flight)
    return found


async def _compare_episode(
    run: RecordedRun,
    model: Model,
    salt: str,
    chosen: Positions,
    found: list[ForcedToken],
    episode: Trajectory,
) -> None:
    """Force an episode's answers with the cache, up to the last one with chosen positions, and compare
    those."""
    turns = chosen[episode.episode]

    async def watch(number: int, played: Played) -> None:
        if number in turns:
            probe, answer = partial(probe_engine, model.engine, played.replica), played.answer.token_ids
            found.extend(await compare(probe, played.prompt, answer, turns[number], salt))

    wanted = replace(episode, turns=episode.turns[: max(turns) + 1])
    check = partial(run.check, episode)
    await play_script(model, run.script(wanted), Forcing(lambda: salt), check, watch)


async def study_cache(
    runs: Sequence[RecordedRun], prices: Prices, status: Status, tokens: int = TOKENS
) -> Measurement:
    """Play the episodes of runs with the prefix cache and without.

    Args:
        runs: runs of one model.
        tokens: recorded tokens of each method whose log-probabilities are compared; 0 for none.
        prices: prices of the model's tokens; the price of a cached one is replaced by each of `RATIOS`.

    Returns:
        A measurement. Its `methods` have for each method the `passes` with the cache and without
            (`pass_figures`), the `recorded` usage of the same requests, and how many requests of the ledgers
            were `left_out` (those of sleeps, probes and aborted attempts), and the `logprobs`
            (`shift_figures`).

    Raises:
        InvalidConfig: the runs' models differ, or have no token ids.
        StorageError: a run cannot be read or rebuilt.
        ServingError: the engine failed.
    """
    first = runs[0]
    model_config = completions_api(first.setup.model_config)
    methods: dict[str, list[RecordedRun]] = {}
    for run in runs:
        if run.setup.model_config != model_config:
            raise InvalidConfig(
                f"{run.data.path} was played by {run.setup.model_config.name!r} and {first.data.path}"
                f" by {model_config.name!r}: choose runs of one model configuration"
            )
        run.episodes()  # reports a run that cannot be played before a server is started
        methods.setdefault(run.method, []).append(run)
    in_flight = [run.in_flight for run in runs]
    many = ", ".join(map(str, dict.fromkeys(in_flight)))
    found = Measurement(f"{model_config.name}: recorded requests replayed, at most {many} episodes in flight")
    found.facts = {"model": model_config.name, "in_flight": in_flight, "prices": prices, "methods": []}
    async with open_engine(model_config, first.setup.config, status) as deployment:
        for method, each in methods.items():
            passes = CachePass(cache=True), CachePass(cache=False)
            for run in each:
                status(f"replaying {run.data.path} with and without the cache")
                await play_twice(deployment, run, passes)
            _add(found, method, each, [pass_figures(one, prices) for one in passes])
            if tokens:
                status(f"comparing the log-probabilities of {tokens} recorded tokens")
                compared = await compare_tokens(deployment, each, tokens)
                if not compared:
                    found.notes.append(f"{method}: no recorded token could be compared.")
                    continue
                figures = shift_figures(compared, model_config.dtype)
                found.facts["methods"][-1]["logprobs"] = figures
                add_shifts(found, method, figures)
    if prices.uncached or prices.output:
        found.notes.append(f"USD per million tokens: {prices.uncached:g} uncached, {prices.output:g} output.")
    else:
        found.notes.append(
            f"USD: {NOT_MEASURED}: all prices are zero; choose another price list with --prices."
        )
    return found


def _add(found: Measurement, method: str, runs: list[RecordedRun], passes: list[dict[str, Any]]) -> None:
    """Add a method's passes, the one with the cache first."""
    one, other = passes
    episodes = [each for run in runs for played in run.episodes().values() for each in played]
    turns = [turn for each in episodes for turn in each.turns]
    recorded = sum((turn.usage for turn in turns), Usage())
    rows = [row for run in runs for row in run.data.requests]
    left_out = sum(row.labels.get("role") != "prefix_warm_up" for row in rows) - len(turns)
    ratio = {name: _ratio(one[name], other[name]) or "" for name in one} | {"cache": "with/without"}
    title = f"{method}: {len(episodes)} episodes of {len(runs)} runs"
    found.tables.append(Table("", [one, other, ratio], title=title, turned=True))
    found.notes.append(
        f"{method}, as recorded: {recorded.cached / max(recorded.prompt, 1):.2%} of {recorded.prompt}"
        f" prompt tokens from the cache, {recorded.completion} output tokens. Not replayed: {left_out}"
        " other requests of the ledgers (sleeps, probes, aborted attempts)."
    )
    if one["foreign"] or other["foreign"]:
        found.notes.append(
            "Other clients used the engine meanwhile, or requests were retried. The engine's own"
            " figures are left out. Do not rely on the other times."
        )
    names = [str(run.data.path) for run in runs]
    about = {"method": method, "runs": names, "episodes": len(episodes), "recorded": recorded}
    found.facts["methods"].append(about | {"left_out": left_out, "passes": passes})


def pass_figures(one: CachePass, prices: Prices) -> dict[str, Any]:
    """Return a pass as a row; `None`: not measured.

    - requests, prefix_warm_ups: requests for answers, and for shared prefixes alone;
    - prompt, cached, computed, output: tokens of all of them; cached_share: share of the prompt tokens;
    - wall_s: duration; inference_s: the engine's own seconds, summed over requests;
    - output_per_s, total_per_s: tokens by `wall_s`; `total` is prompt and output;
    - first_token_s: mean time from a request's arrival in the engine to its first token; first_token_by: its
      source, `replies` or `histogram`;
    - first_token_p50_s, first_token_p95_s: median and 95th percentile, if replies report each one's;
    - compared: answers that were whole calls when they were recorded, so that their tokens are known;
      respelled: those of them that took another number of tokens now;
    - unforced: answers with another text than the recorded one; skipped, foreign: see `CachePass`;
    - usd_at_RATIO: cost by the price of a cached token as a share of an uncached one's.

    Raises `InvalidConfig` if nothing could be played.
    """
    import numpy as np

    if not one.played:
        raise InvalidConfig("no answer was replayed: the recorded ones no longer fit the model's context")
    usage = sum_usage([row for row in one.rows if row.labels["role"] in ("replay", "prefix_warm_up")])
    engine = {} if one.foreign else one.engine
    times = [each.answer.first_token_s for each in one.played]
    own_times = None if None in times else np.array(times, float)
    mean = _ratio(engine.get("first_token_s"), engine.get("first_tokens"))
    p50 = p95 = None
    if own_times is not None:
        mean, p50, p95 = map(float, (own_times.mean(), *np.quantile(own_times, (0.5, 0.95))))
    pairs = [(each.recorded, each.answer) for each in one.played if each.recorded is not None]
    compared = [(turn, answer) for turn, answer in pairs if turn.call is not None]
    paid = bool(prices.uncached or prices.output)
    return {
        "cache": "with" if one.cache else "without",
        "requests": len(one.played),
        "prefix_warm_ups": sum(
            row.usage is not None and row.labels["role"] == "prefix_warm_up" for row in one.rows
        ),
        "prompt": usage.prompt,
        "cached": usage.cached,
        "computed": usage.uncached,
        "output": usage.completion,
        "cached_share": usage.cached / usage.prompt,
        "wall_s": one.wall_s,
        "inference_s": engine.get("inference_s"),
        "output_per_s": usage.completion / one.wall_s,
        "total_per_s": (usage.prompt + usage.completion) / one.wall_s,
        "first_token_s": mean,
        "first_token_p50_s": p50,
        "first_token_p95_s": p95,
        "first_token_by": None if mean is None else "histogram" if own_times is None else "replies",
        "compared": len(compared),
        "respelled": sum(answer.usage.completion != turn.usage.completion for turn, answer in compared),
        "unforced": sum((a.text, a.reasoning) != (turn.text, turn.reasoning) for turn, a in pairs),
        "skipped": one.skipped,
        "foreign": one.foreign,
        **{
            f"usd_at_{ratio:g}": replace(prices, cached=ratio * prices.uncached).cost(usage) if paid else None
            for ratio in RATIOS
        },
    }


def _ratio(one: Any, other: Any) -> float | None:
    numbers = all(isinstance(each, int | float) for each in (one, other))
    return one / other if numbers and other else None


def write_csv(study: Measurement, file: Path) -> None:
    """Write one row per method and pass; an empty field was not measured. Raises `StorageError`."""
    rows = [
        {"model": study.facts["model"], "method": each["method"], "runs": len(each["runs"])}
        | {"episodes": each["episodes"]}
        | one
        for each in study.facts["methods"]
        for one in each["passes"]
    ]
    table = writing.Table(file.name, "", list(rows[0]), [tuple(row.values()) for row in rows])
    write_atomic(file, writing.csv_text(table).encode())
