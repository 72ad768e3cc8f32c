"""What prefix caching changes, by method: `speedrunner study cache`."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.usage import Prices, Usage
from speedrunner.config.schema import InvalidConfig
from speedrunner.measure.cache_passes import CachePass, RecordedRun, play_twice
from speedrunner.measure.engine import opened, tokens_route
from speedrunner.measure.measurement import NOT_MEASURED, Measurement, Status, Table

RATIOS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Prices of a cached prompt token, as a share of an uncached one's."""


async def study_cache(runs: Sequence[RecordedRun], prices: Prices, status: Status) -> Measurement:
    """Play the episodes of runs with the prefix cache and without.

    Args:
        runs: of one model.
        prices: of the model's tokens; a cached one's is replaced by each of `RATIOS`.

    Returns:
        Its `methods` hold for each method the `passes` with the cache and without (`pass_figures`), the
        `recorded` usage of the same requests, and how many requests of the ledgers were `left_out` (those of
        sleeps, probes and attempts given up).

    Raises:
        InvalidConfig: the runs' models differ, or have no token ids.
        StorageError: a run cannot be read, or not be rebuilt.
        ServingError: the engine failed.
    """
    first = runs[0]
    card = tokens_route(first.setup.card)
    methods: dict[str, list[RecordedRun]] = {}
    for run in runs:
        if run.setup.card != card:
            raise InvalidConfig(
                f"{run.data.path} was played by {run.setup.card.name!r} and {first.data.path} by"
                f" {card.name!r}: name runs of one model card"
            )
        run.episodes()  # one that cannot be played is told before a server is started
        methods.setdefault(run.method, []).append(run)
    many = ", ".join(str(n) for n in dict.fromkeys(run.in_flight for run in runs))
    found = Measurement(f"{card.name}: recorded requests played again, at most {many} episodes in flight")
    in_flight = [run.in_flight for run in runs]
    found.facts = {"model": card.name, "in_flight": in_flight, "prices": prices, "methods": []}
    async with opened(card, first.setup.config, status) as deployment:
        for method, each in methods.items():
            passes = CachePass(cache=True), CachePass(cache=False)
            for run in each:
                status(f"playing {run.data.path} with the cache and without")
                await play_twice(deployment, run, passes)
            _add(found, method, each, [pass_figures(one, prices) for one in passes])
    if prices.uncached or prices.output:
        found.notes.append(f"USD per million tokens: {prices.uncached:g} uncached, {prices.output:g} output.")
    else:
        found.notes.append(f"USD: {NOT_MEASURED}: the price list is all zeros; name another with --prices.")
    return found


def _add(found: Measurement, method: str, runs: list[RecordedRun], passes: list[dict[str, Any]]) -> None:
    """Add a method's passes, the one with the cache first."""
    one, other = passes
    episodes = [each for run in runs for played in run.episodes().values() for each in played]
    turns = [turn for each in episodes for turn in each.turns]
    then = sum((turn.usage for turn in turns), Usage())
    rows = [row for run in runs for row in run.data.requests]
    left_out = sum(row.labels.get("role") != "warming" for row in rows) - len(turns)
    ratio = {name: _ratio(one[name], other[name]) or "" for name in one} | {"cache": "with/without"}
    title = f"{method}: {len(episodes)} episodes of {len(runs)} runs"
    found.tables.append(Table("", [one, other, ratio], title=title, turned=True))
    found.notes.append(
        f"{method}, as recorded: {then.cached / max(then.prompt, 1):.2%} of {then.prompt} prompt tokens from"
        f" the cache, {then.completion} output tokens. Not played: {left_out} other requests of the ledgers"
        " (sleeps, probes, attempts given up)."
    )
    if one["foreign"] or other["foreign"]:
        found.notes.append(
            "Others used the engine meanwhile, or requests had to be tried again: its own figures are left"
            " out, and the other times are not to be trusted."
        )
    names = [str(run.data.path) for run in runs]
    about = {"method": method, "runs": names, "episodes": len(episodes), "recorded": then}
    found.facts["methods"].append(about | {"left_out": left_out, "passes": passes})


def pass_figures(one: CachePass, prices: Prices) -> dict[str, Any]:
    """A pass as a row; `None` for what was not measured.

    - requests, warmings: requests for answers, and for shared prefixes alone;
    - prompt, cached, computed, output: tokens of all of them; cached_share: of the prompt tokens;
    - wall_s: how long it took; inference_s: the engine's own seconds, summed over requests;
    - output_per_s, total_per_s: tokens by `wall_s`; `total` is prompt and output;
    - first_token_s: mean time to the first token of an answer, from its arrival in the engine;
      first_token_by: where that is from: `replies` or `histogram`;
    - first_token_p50_s, first_token_p95_s: median and 95th percentile, where replies tell each one's;
    - compared: answers that were whole calls when they were recorded, so that their tokens are known;
      respelled: those of them that took another number of tokens now;
    - unforced: answers whose text is not the recorded one; skipped, foreign: see `CachePass`;
    - usd_at_RATIO: cost by the price of a cached token as a share of an uncached one's.

    Raises `InvalidConfig` where nothing could be played.
    """
    if not one.answers:
        raise InvalidConfig("no answer was played: the recorded ones do not fit the model's context any more")
    rows = [row for row in one.rows if row.usage is not None and row.labels["role"] in ("study", "warming")]
    usage = sum((row.usage or Usage() for row in rows), Usage())
    engine = {} if one.foreign else one.engine
    times = [answer.first_token_s for _, answer in one.answers if answer.first_token_s is not None]
    whole = len(times) == len(one.answers)
    by_engine = _ratio(engine.get("first_token_s"), engine.get("first_tokens"))
    mean = statistics.mean(times) if whole else by_engine
    cuts = statistics.quantiles(times, n=20) if whole and len(times) > 1 else [None] * 19
    compared = [(turn, answer) for turn, answer in one.answers if turn.call is not None]
    figures = {
        "cache": "with" if one.cache else "without",
        "requests": len(one.answers),
        "warmings": sum(row.labels["role"] == "warming" for row in rows),
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
        "first_token_p50_s": cuts[9],
        "first_token_p95_s": cuts[-1],
        "first_token_by": None if mean is None else "replies" if whole else "histogram",
        "compared": len(compared),
        "respelled": sum(answer.usage.completion != turn.usage.completion for turn, answer in compared),
        "unforced": sum((a.text, a.reasoning) != (turn.text, turn.reasoning) for turn, a in one.answers),
        "skipped": one.skipped,
        "foreign": one.foreign,
    }
    for ratio in RATIOS:
        priced = msgspec.structs.replace(prices, cached=ratio * prices.uncached)
        figures[f"usd_at_{ratio:g}"] = priced.cost(usage) if prices.uncached or prices.output else None
    return figures


def _ratio(one: Any, other: Any) -> float | None:
    numbers = all(isinstance(each, int | float) for each in (one, other))
    return one / other if numbers and other else None


def write_csv(study: Measurement, file: Path) -> None:
    """One row per method and pass; an empty field was not measured. Raises `InvalidConfig`."""
    rows = []
    for each in study.facts["methods"]:
        about = {"model": study.facts["model"], "method": each["method"], "runs": len(each["runs"])}
        rows += [about | {"episodes": each["episodes"]} | one for one in each["passes"]]
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InvalidConfig(f"--csv {file} cannot be written: {error.strerror or error}") from None
