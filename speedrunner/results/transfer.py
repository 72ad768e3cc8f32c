"""Libraries played by another model or seed than the one that learned them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pandas

from speedrunner.config.names import condition_name
from speedrunner.config.schema import LibraryConfig
from speedrunner.results.inference import CONFIDENCE, RESAMPLES, Estimate, bootstrap_mean
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Table, table_of


class Player(msgspec.Struct, frozen=True, order=True):
    """A model and a seed: those that learned a library, or those that play it."""

    model: str
    seed: int


class Transfer(msgspec.Struct, frozen=True):
    """One evaluation of a library.

    Attributes:
        library: who learned it.
        episodes: scored test episodes.
        score, output: mean per test episode with its interval over episodes; `output` in tokens, `None` if no
            episode sent a request.
        runs: paths of the run that learned the library and of the evaluation.
    """

    env: str
    method: str
    library: Player
    player: Player
    episodes: int
    score: Estimate
    output: Estimate | None
    runs: tuple[str, str]


def find_transfers(runs: Sequence[RunResult]) -> list[Transfer]:
    """Return the finished evaluations of newest libraries of other runs in the same folder, sorted.

    Evaluations of a part of a library, in another environment, or without the prefix cache are left out.
    """
    by_path = {Path(run.path): run for run in runs}
    found: list[Transfer] = []
    for run in runs:
        start = run.config.run.start_from
        if start is None or run.config.run.rollouts or run.unfinished or run.checkpoints.empty:
            continue
        source = by_path.get(Path(run.path).parent / Path(start).name)
        if source is not None and _is_transfer(source, run):
            found += _transfer(source, run)
    return sorted(found, key=lambda each: (each.env, each.method, each.library, each.player))


def transfer_table(transfers: Sequence[Transfer]) -> Table:
    """Return a table with a row for each library and player."""
    rows = [
        (
            *(each.env, each.method, each.library.model, each.library.seed),
            *(each.player.model, each.player.seed, each.episodes),
            *(each.score.mean, each.score.low, each.score.high),
            *((each.output.mean, each.output.low, each.output.high) if each.output else (None,) * 3),
        )
        for each in transfers
    ]
    columns = ["env", "method", "library_model", "library_seed", "player_model", "player_seed", "episodes"]
    columns += ["score", "score_low", "score_high", "output", "output_low", "output_high"]
    text = (
        "Libraries played by another model or seed than the one that learned them, and again by the same:"
        " score and output tokens per test episode, without training. Intervals:"
        f" {CONFIDENCE:.0%} percentile bootstrap over test episodes ({RESAMPLES} resamples), for this"
        " library alone."
    )
    return table_of("transfer", text, pandas.DataFrame(rows, columns=columns))


def _is_transfer(source: RunResult, run: RunResult) -> bool:
    config = run.config
    own = condition_name(config.with_run(start_from=None))
    return (
        config.library == LibraryConfig()
        and (own.env, own.method) == (source.condition_name.env, source.condition_name.method)
        and config.model.prefix_caching == source.config.model.prefix_caching
    )


def _transfer(source: RunResult, run: RunResult) -> Iterator[Transfer]:
    score, output = (
        bootstrap_mean(run.values(run.points[-1], name).tolist()) for name in ("score", "output")
    )
    if score is not None:
        yield Transfer(
            env=source.condition_name.env,
            method=source.condition_name.method,
            library=Player(source.condition_name.model, source.seed),
            player=Player(run.condition_name.model, run.seed),
            episodes=score.count,
            score=score,
            output=output,
            runs=(source.path, run.path),
        )
