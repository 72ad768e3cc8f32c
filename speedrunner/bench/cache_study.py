"""The effect of prefix caching by method: `speedrunner bench replay`.

A run's recorded episodes are played twice: with the prefix cache, and with nothing shared between requests.
docs/results.md explains what is played and how both passes are kept fair. Answers are forced to the recorded
ones. Each pass has its own `cache_salt` (a new one for every request without the cache) and its own grammars,
so neither finds grammars that the other compiled. Then the log-probabilities of some recorded tokens are
compared (`speedrunner.bench.cache_truth`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from serving.conversation import Completion
from serving.deployment import Deployment
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_counters
from serving.meter import LedgerRow
from serving.model import Model
from serving.together import run_together
from serving.usage import Counters, Prices, Usage
from speedrunner.bench.cache_truth import compare_tokens, shift_figures
from speedrunner.bench.engine import completions_api, open_engine
from speedrunner.bench.forced_replay import RecordedRun
from speedrunner.bench.measurement import NOT_MEASURED, Measurement, Table, columns
from speedrunner.config.console import Status
from speedrunner.config.schema import InvalidConfig
from speedrunner.store.records import Trajectory, Turn

TOKENS = 200
"""Recorded tokens of each method whose log-probabilities are compared, by default."""

RATIOS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Prices of a cached prompt token, as a share of an uncached one's."""

VERDICTS = {
    None: "no prompt token came from the cache, so it was not compared.",
    True: "cached and computed prefixes give the same distribution, within the engine's noise.",
    False: (
        "cached and computed prefixes give DIFFERENT distributions. Do not rely on results with this"
        " cache: set server.flags.enable-prefix-caching to false, or use another version of vLLM."
    ),
}


@dataclass
class CachePass:
    """The totals of one pass over episodes.

    Attributes:
        cache: whether requests shared the prefix cache.
        rows: rows of the ledger.
        played: the recorded turns with their answers.
        wall_s: time from each policy's first request to its last answer, summed.
        foreign: whether others used the engine meanwhile, or requests had to be tried again.
        skipped: answers without room in the context, because earlier ones took more tokens.
    """

    cache: bool
    rows: list[LedgerRow] = field(default_factory=list)
    played: list[tuple[Turn, Completion]] = field(default_factory=list)
    wall_s: float = 0.0
    foreign: bool = False
    skipped: int = 0
    salt: str = field(default_factory=lambda: secrets.token_hex(8))

    async def play(self, run: RecordedRun, model: Model, episode: Trajectory) -> None:
        """Play an episode, and count its answers. Raises as `play_twice`."""
        if self.cache:
            played = await run.play(model, episode, lambda: self.salt)
        else:
            played = await run.play(model, episode, lambda: secrets.token_hex(8), cut=1)
        self.played += played
        self.skipped += len(episode.turns) - len(played)

    async def measure(
        self, run: RecordedRun, model: Model, endpoint: Endpoint, episodes: Sequence[Trajectory]
    ) -> None:
        """Play the episodes of one policy, and add their totals. Raises as `play_twice`."""
        start, counted = len(self.rows), await read_counters(endpoint)
        began = time.monotonic()
        if self.cache:
            messages, tools = run.opening(episodes[0])
            await model.warm("actor", messages, tools, {}, cache_salt=self.salt)
        await run_together(partial(self.play, run, model), episodes, run.in_flight)
        self.wall_s += time.monotonic() - began
        grown = await read_counters(endpoint) - counted
        self.foreign |= grown != Counters.of(sum_usage(self.rows[start:]))


async def play_twice(deployment: Deployment, run: RecordedRun, passes: Sequence[CachePass]) -> None:
    """Play a run's episodes in each pass, policy by policy, and add the totals to the passes.

    The pass that plays first alternates, so that neither has an advantage.

    Raises:
        RunDirectoryError: a first prompt has another length than recorded.
        ServingError: the engine failed.
    """
    policies = list(run.episodes().values())
    async with deployment.client(lambda row: None) as model:
        # An engine's first request of a kind takes longer, so this one counts for neither pass.
        first = replace(policies[0][0], turns=policies[0][0].turns[:1])
        await CachePass(cache=False).play(run, model, first)
    for number, episodes in enumerate(policies):
        for one in passes if number % 2 == 0 else reversed(passes):
            async with deployment.client(one.rows.append, admission=one.cache) as model:
                await one.measure(run, model, deployment.endpoint, episodes)


def sum_usage(rows: Sequence[LedgerRow]) -> Usage:
    """Return the tokens of all answered requests."""
    return sum((row.usage for row in rows if row.usage is not None), Usage())


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
            (`pass_figures`), the `recorded` usage of the same requests, how many requests of the ledgers were
            `left_out` (those of sleeps, probes and aborted attempts), and the `logprobs` (`shift_figures`).

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
                _add_shifts(found, method, figures)
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
    episodes = [each for run in runs for each in run.all_episodes()]
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
            "Other clients used the engine meanwhile, or requests were retried. Do not rely on the times."
        )
    names = [str(run.data.path) for run in runs]
    about = {"method": method, "runs": names, "episodes": len(episodes), "recorded": recorded}
    found.facts["methods"].append(about | {"left_out": left_out, "passes": passes})


def _add_shifts(found: Measurement, method: str, figures: dict[str, Any]) -> None:
    """Add the table of a method's shifts and the verdict."""
    names = {"cached": "cached and computed", "control": "computed twice", "limit": "counts as noise"}
    rows = [{"shift": text} | figures[name] for name, text in names.items()]
    title = f"{method}: shift of the log-probability of {figures['tokens']} recorded tokens"
    found.tables.append(Table("", rows, columns("shift", "median:.2g", "p95:.2g", "max:.2g"), title=title))
    found.notes.append(f"{method}: {VERDICTS[figures['same']]}")


def pass_figures(one: CachePass, prices: Prices) -> dict[str, Any]:
    """Return a pass as a row; `None`: not measured.

    - requests, prefix_warm_ups: requests for answers, and for shared prefixes alone;
    - prompt, cached, computed, output: tokens of all of them; cached_share: share of the prompt tokens;
    - wall_s: duration; output_per_s: output tokens by `wall_s`;
    - first_token_s, first_token_p50_s, first_token_p95_s: mean, median and 95th percentile of the time from a
      request's arrival in the engine to its first token, if replies report it;
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
    times = [answer.first_token_s for _, answer in one.played]
    mean = p50 = p95 = None
    if None not in times:
        own = np.array(times, float)
        mean, p50, p95 = map(float, (own.mean(), *np.quantile(own, (0.5, 0.95))))
    compared = [(turn, answer) for turn, answer in one.played if turn.call is not None]
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
        "output_per_s": usage.completion / one.wall_s,
        "first_token_s": mean,
        "first_token_p50_s": p50,
        "first_token_p95_s": p95,
        "compared": len(compared),
        "respelled": sum(answer.usage.completion != turn.usage.completion for turn, answer in compared),
        "unforced": sum((a.text, a.reasoning) != (turn.text, turn.reasoning) for turn, a in one.played),
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
