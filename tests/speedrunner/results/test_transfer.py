"""Libraries played by others: which evaluations count, and what the table says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from speedrunner.config.schema import LibraryConfig
from speedrunner.results.run_result import RunResult
from speedrunner.results.transfer import Player, find_transfers, transfer_table
from tests.speedrunner.results.summaries import checkpoint, summary


def learned(model: str, seed: int = 0, env: str = "babyai") -> RunResult:
    return summary(env, "speedrunner", seed, checkpoint(0, [{}]), checkpoint(50, [{}]), model=model)


def played(source: RunResult, model: str, seed: int, scores: Sequence[float], **run: Any) -> RunResult:
    """An evaluation of a run's newest library; each episode has 100 output tokens per score."""
    start = run.pop("start_from", source.path)
    values = [{"score": score, "output": 100 * score} for score in scores]
    found = summary(
        source.config.env.name, "speedrunner", seed, checkpoint(0, values), model=model,
        start_from=start, rollouts=0, **run,
    )  # fmt: skip
    return replace(found, path=f"{source.path}-by-{model}-{seed}")


def test_each_evaluation_is_a_row_with_its_library_and_its_player() -> None:
    large, small = learned("large"), learned("small", 1)
    runs = [large, small, played(large, "small", 1, [0.5, 1.0]), played(small, "small", 1, [0.0])]
    first, second = find_transfers(runs)
    assert (first.library, first.player) == (Player("large", 0), Player("small", 1))
    assert (second.library, second.player) == (Player("small", 1), Player("small", 1))
    table = transfer_table([first, second])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["library_model"], row["player_model"], row["player_seed"]) == ("large", "small", 1)
    assert (row["episodes"], row["score"], row["output"]) == (2, 0.75, 75)
    assert (row["score_low"], row["score_high"]) == (0.5, 1.0)


def test_other_evaluations_do_not_count() -> None:
    source = learned("large")
    good = played(source, "small", 0, [1.0])
    config = good.config
    uncached = msgspec.structs.replace(config.model, prefix_caching=False)
    others = [
        replace(good, config=msgspec.structs.replace(config, library=LibraryConfig(visible_last=3))),
        replace(good, config=msgspec.structs.replace(config, model=uncached)),
        replace(good, unfinished=[0]),
        played(source, "small", 0, [1.0], start_from=f"{source.path}:1"),
        played(source, "small", 0, [1.0], start_from="runs/other"),
        replace(good, config=msgspec.structs.replace(config, env=learned("x", env="crafter").config.env)),
    ]
    assert find_transfers([source, *others]) == []
    assert len(find_transfers([source, good])) == 1
    assert find_transfers([good]) == []


def test_tokens_of_episodes_without_a_request_are_unknown() -> None:
    source = learned("large")
    run = played(source, "small", 0, [0.0])
    silent = replace(run, episodes=run.episodes.assign(output=float("nan")))
    (found,) = find_transfers([source, silent])
    assert found.output is None
    (row,) = transfer_table([found]).rows
    assert row[-3:] == (None, None, None)
    assert row[7] == pytest.approx(0.0)
