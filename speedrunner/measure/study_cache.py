"""What prefix caching changes, by method: `speedrunner study cache`."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.cards import prepare
from serving.deployment import Deployment, deploy
from serving.meter import LedgerRow
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Prices, Usage
from speedrunner.config.check import InvalidConfig
from speedrunner.measure.streams import Recording, Renderer, recording
from speedrunner.measure.study_replay import Pass, Replay, Say
from speedrunner.runs.setup import Setup, service_options
from speedrunner.store.data import RunData

RATIOS = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Prices of a cached prompt token, as a share of an uncached one's."""

WITH, WITHOUT = "with", "without"


class PassRow(msgspec.Struct, frozen=True, kw_only=True):
    """One method's streams, played once. `None` stands for what was not measured.

    Attributes:
        cache: `with` or `without` the prefix cache.
        requests, warmings: requests for answers, and for shared prefixes alone.
        prompt, cached, computed, output: tokens of all of them.
        cached_share: cached tokens of all prompt tokens.
        wall_s: how long it took.
        inference_s: the engine's own seconds of inference, summed over requests.
        output_per_s, total_per_s: tokens by `wall_s`; `total` is prompt and output.
        first_token_s: mean time to the first token of an answer, from its arrival in the engine.
        first_token_p50_s, first_token_p95_s: its median and 95th percentile, where replies tell each one's.
        first_token_by: where that is from: `replies` or `histogram`.
        compared, respelled: answers whose token count can be compared with the recorded one, and those of
            them whose count differs.
        unforced: answers whose text is not the recorded one.
        skipped: answers for which the context had no room any more, as those before took more tokens.
        foreign: whether others used the engine meanwhile, or requests had to be tried again.
        usd: cost by the price of a cached token as a share of an uncached one's; none without a price list.
    """

    cache: str
    requests: int
    warmings: int
    prompt: int
    cached: int
    computed: int
    output: int
    cached_share: float
    wall_s: float
    inference_s: float | None
    output_per_s: float
    total_per_s: float
    first_token_s: float | None
    first_token_p50_s: float | None
    first_token_p95_s: float | None
    first_token_by: str | None
    compared: int
    respelled: int
    unforced: int
    skipped: int
    foreign: bool
    usd: dict[str, float]


class MethodRows(msgspec.Struct, frozen=True, kw_only=True):
    """What caching changes for one method.

    Attributes:
        method: its name and its environment's.
        runs, episodes: how many were played.
        recorded: tokens of the same requests as they were recorded.
        left_out: requests of the runs' ledgers that were not played (sleeps, probes, attempts given up).
        passes: with the cache, then without.
    """

    method: str
    runs: list[str]
    episodes: int
    recorded: Usage
    left_out: int
    passes: list[PassRow]


class CacheStudy(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result.

    Attributes:
        in_flight: episodes at the same time, at most, of each run.
        prices: USD per million tokens; a cached one's is replaced by each ratio.
    """

    model: str
    in_flight: list[int]
    prices: Prices
    methods: list[MethodRows]


@dataclass(frozen=True)
class Recorded:
    """One run, as it is to be played again."""

    data: RunData
    setup: Setup
    in_flight: int

    @property
    def method(self) -> str:
        """What its results are grouped by."""
        return f"{self.setup.config.method.name} on {self.setup.config.env.name}"


async def study_cache(runs: Sequence[Recorded], prices: Prices, log: Path, say: Say) -> CacheStudy:
    """Play the streams of runs with the prefix cache and without.

    Args:
        runs: of one model.
        prices: of the model's tokens.
        log: file for the output of a server that is started.

    Raises:
        InvalidConfig: the runs' models differ, or have no token ids.
        StorageError: a run cannot be read, or not be rebuilt.
        ServingError: the engine failed.
    """
    first = runs[0].setup
    card = first.card
    for run in runs:
        if run.setup.card != card:
            raise InvalidConfig(
                f"{run.data.path} was played by {run.setup.card.name!r} and {runs[0].data.path} by"
                f" {card.name!r}: name runs of one model card"
            )
    if card.route != "tokens":
        raise InvalidConfig(f"model {card.name!r} is on the chat route: its answers cannot be forced")
    renderer = Renderer(card, ChatTokenizer(prepare(card, say), card.revision))
    recordings = [recording(run.data, run.setup, renderer) for run in runs]
    replays: list[Replay] = []
    async with deploy(card, service_options(first.config), log=log, say=say, waiting=say) as deployment:
        for run, recorded in zip(runs, recordings, strict=True):
            replays.append(await _replay(deployment, renderer, run, recorded, say))
    return CacheStudy(
        model=card.name,
        in_flight=[run.in_flight for run in runs],
        prices=prices,
        methods=[
            _method_rows(
                name,
                [n for n, run in enumerate(runs) if run.method == name],
                runs,
                recordings,
                replays,
                prices,
            )
            for name in dict.fromkeys(run.method for run in runs)
        ],
    )


async def _replay(
    deployment: Deployment, renderer: Renderer, run: Recorded, recorded: Recording, say: Say
) -> Replay:
    rows: list[LedgerRow] = []
    async with deployment.client(rows.append) as model:
        replay = Replay(deployment, model, renderer, admission=run.setup.config.serving.admission)
        await replay.play(recorded.blocks, run.in_flight, lambda line: say(f"{run.data.path}: {line}"))
    return replay


def _method_rows(
    name: str,
    numbers: Sequence[int],
    runs: Sequence[Recorded],
    recordings: Sequence[Recording],
    replays: Sequence[Replay],
    prices: Prices,
) -> MethodRows:
    streams = [stream for n in numbers for block in recordings[n].blocks for stream in block.streams]
    answers = [answer for stream in streams for answer in stream.answers]
    return MethodRows(
        method=name,
        runs=[str(runs[n].data.path) for n in numbers],
        episodes=len(streams),
        recorded=sum((answer.usage for answer in answers), Usage()),
        left_out=sum(recordings[n].left_out for n in numbers),
        passes=[
            _pass_row([replays[n].cached for n in numbers], prices),
            _pass_row([replays[n].fresh for n in numbers], prices),
        ],
    )


def _pass_row(passes: Sequence[Pass], prices: Prices) -> PassRow:
    one = passes[0]
    for other in passes[1:]:
        one += other
    usage, told = one.usage, one.first_token_s
    if not one.requests:
        raise InvalidConfig("no answer was played: the recorded ones do not fit the model's context any more")
    complete = len(told) == one.requests
    mean, by = (
        (statistics.mean(told), "replies") if complete else (one.engine.first_token_mean_s, "histogram")
    )
    cuts = statistics.quantiles(told, n=20) if complete and len(told) > 1 else None
    return PassRow(
        cache=WITH if one.cache else WITHOUT,
        requests=one.requests,
        warmings=one.warmings,
        prompt=usage.prompt,
        cached=usage.cached,
        computed=usage.uncached,
        output=usage.completion,
        cached_share=usage.cached / usage.prompt,
        wall_s=one.wall_s,
        inference_s=one.engine.inference_s,
        output_per_s=usage.completion / one.wall_s,
        total_per_s=(usage.prompt + usage.completion) / one.wall_s,
        first_token_s=mean,
        first_token_p50_s=None if cuts is None else statistics.median(told),
        first_token_p95_s=None if cuts is None else cuts[-1],
        first_token_by=None if mean is None else by,
        compared=one.compared,
        respelled=one.respelled,
        unforced=one.unforced,
        skipped=one.skipped,
        foreign=one.engine.foreign,
        usd={
            f"{ratio:g}": msgspec.structs.replace(prices, cached=ratio * prices.uncached).cost(usage)
            for ratio in RATIOS
        }
        if prices.uncached or prices.output
        else {},
    )


def write_csv(study: CacheStudy, file: Path) -> None:
    """One row per method and pass; an empty field was not measured. Raises `InvalidConfig`."""
    rows = []
    for method in study.methods:
        for one in method.passes:
            values = msgspec.structs.asdict(one)
            usd = values.pop("usd")
            costs = {f"usd_at_{ratio:g}": usd.get(f"{ratio:g}") for ratio in RATIOS}
            head = {"model": study.model, "method": method.method, "runs": len(method.runs)}
            rows.append({**head, "episodes": method.episodes, **values, **costs})
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InvalidConfig(f"--csv {file} cannot be written: {error.strerror or error}") from None
