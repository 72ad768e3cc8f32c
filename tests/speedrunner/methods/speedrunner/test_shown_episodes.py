"""Episodes in the prompt of an inducer without a code interpreter: whole, shortened, or only named."""

from __future__ import annotations

import msgspec

from speedrunner.methods import headline, trajectory_text
from speedrunner.methods.speedrunner.shown_episodes import select_episodes
from tests.speedrunner.run_samples import trajectory

BATCH = [trajectory(f"train/{number:04d}", policy=number) for number in range(3)]
TEXTS = [trajectory_text(each) for each in BATCH]
LONG = msgspec.structs.replace(trajectory("train/0003"), turns=trajectory().turns * 50)
HEADLINES = [headline(msgspec.to_builtins(each)) for each in BATCH]


def test_a_batch_that_fits_is_shown_whole_oldest_first() -> None:
    assert select_episodes(BATCH, sum(map(len, TEXTS)), len) == (TEXTS, [], 1.0)


def test_a_long_episode_keeps_its_first_and_last_turns_and_the_others_are_whole() -> None:
    room = sum(map(len, TEXTS)) + 1_000
    texts, left_out, share = select_episodes([BATCH[0], LONG, BATCH[2]], room, len)
    assert (texts[0], texts[2], left_out) == (TEXTS[0], TEXTS[2], [])
    lines = texts[1].splitlines()
    (gap,) = (line for line in lines if line.startswith("[turns "))
    assert lines.index("[1]") < lines.index(gap) < lines.index("[100]")
    first, last = (int(word) for word in gap.split() if word.isdigit())
    numbers = [int(line[1:-1]) for line in lines if line[1:-1].isdigit()]
    assert numbers == [*range(1, first), *range(last + 1, 101)]
    assert sum(map(len, texts)) <= room
    assert 0.1 < share < 1


def test_long_episodes_share_the_room_equally() -> None:
    texts, _, _ = select_episodes([LONG, LONG], 4_000, len)
    assert len(texts[0]) == len(texts[1])
    assert 1_500 < len(texts[0]) <= 2_000


def test_an_episode_without_room_for_its_first_and_last_turn_is_named() -> None:
    assert select_episodes(BATCH, 30, len) == ([], HEADLINES, 0.0)
