"""Which whole episodes fit into a context."""

from __future__ import annotations

from speedrunner.agents.trajectory_text import trajectory_lines
from speedrunner.methods.speedrunner.reading import reading
from tests.speedrunner.run_samples import trajectory

BATCH = [trajectory(f"train/{number:04d}", policy=number) for number in range(3)]
TEXTS = ["\n".join(trajectory_lines(each)) for each in BATCH]


def test_a_batch_that_fits_is_shown_whole_oldest_first() -> None:
    found = reading(BATCH, sum(map(len, TEXTS)), len)
    assert (found.texts, found.left_out) == (TEXTS, [])


def test_else_the_newest_are_shown_and_the_others_named() -> None:
    found = reading(BATCH, sum(map(len, TEXTS)) - 1, len)
    assert found.texts == TEXTS[1:]
    assert found.left_out == ["train/0000: policy v0000, success, score 1, 2 LLM calls"]


def test_an_episode_is_shown_whole_or_not_at_all() -> None:
    found = reading(BATCH, len(TEXTS[2]) - 1, len)
    assert (found.texts, len(found.left_out)) == ([], 3)
