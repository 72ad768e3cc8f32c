"""What the checks of a trial find, without a trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.trial import Broken, Records, check_kept, check_order, check_safe


def lines(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def sound() -> Records:
    """Records of a batch with one episode, and of the first episode with what a sleep learned."""
    keys = ["train/0000", "train/0002"]
    return {
        "episodes.jsonl": lines(*({"episode": key} for key in keys)),
        "requests.jsonl": lines(*({"request": key} for key in keys)),
        "policies/v0000/library.json": [b"{}"],
        "policies/v0001/library.json": [b"{}"],
        **{
            f"trajectories/batch_{batch:04d}.jsonl": lines({"episode": key, "turns": [{"request": key}]})
            for batch, key in enumerate(keys)
        },
    }


def test_records_that_are_all_on_the_disk_are_safe() -> None:
    check_safe(sound(), sound())


@pytest.mark.parametrize(
    ("lose", "found"),
    [
        (lambda safe: safe.pop("trajectories/batch_0001.jsonl"), r"could take \['train/0002'\]"),
        (lambda safe: safe["requests.jsonl"].pop(), r"ledger rows of \['train/0002'\]"),
        (lambda safe: safe.pop("policies/v0001/library.json"), "policies/v0001"),
    ],
)
def test_a_record_that_others_rely_on_must_be_on_the_disk(
    lose: Callable[[Records], object], found: str
) -> None:
    safe = sound()
    lose(safe)
    with pytest.raises(Broken, match=found):
        check_safe(sound(), safe)


def test_a_record_that_is_lost_or_changed_is_found() -> None:
    after = sound()
    check_kept(sound(), {**after, "episodes.jsonl": [*after["episodes.jsonl"], b"{}"]})
    with pytest.raises(Broken, match="order of its lines"):
        check_kept(sound(), {**after, "episodes.jsonl": after["episodes.jsonl"][::-1]})
    with pytest.raises(Broken, match="train/0002"):
        check_kept(sound(), {**after, "episodes.jsonl": after["episodes.jsonl"][:1]})


def test_an_episode_that_is_played_again_after_its_sleep_is_found() -> None:
    order = [
        "train/0000",
        "train/0001",
        "sleep/0001",
        "train/0002",
        "train/0003",
        "sleep/0002",
        "test/0004/0000",
    ]
    check_order(order)
    with pytest.raises(Broken, match=r"sleep 1 was played out of order.*train/0001"):
        check_order([*order[:1], *order[2:], "train/0001"])
    with pytest.raises(Broken, match=r"sleep 2 was played out of order.*test/0004"):
        check_order([*order[:5], order[6], order[5]])
