"""The word index of static pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.usage import Usage
from speedrunner.pages.search import Query, search
from speedrunner.pages.search_index import SearchIndex, build_index, shard_of
from speedrunner.store.records import Message, Turn
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import HOSTILE
from tests.speedrunner.pages.runs import CONFIG, append
from tests.speedrunner.run_samples import trajectory


def write(folder: Path, *episodes: list[str]) -> Path:
    """A run with these texts in its episodes' turns."""
    with RunDirectory.open_for_writing(folder) as run:
        run.write_config(CONFIG)
        for number, texts in reversed([*enumerate(episodes)]):
            turns = [Turn([Message("tool", text)], "", Usage(), 0.1, error="no") for text in texts]
            append(run, trajectory(f"train/{number:04d}", turns=turns))
    return folder


def words_of(index: SearchIndex) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, script in index.shards.items():
        text = script.decode()
        assert text.startswith(f"addShard({number}, ")
        shard = json.loads(text.removeprefix(f"addShard({number}, ").removesuffix(");\n"))
        assert {shard_of(word) for word in shard} == {number}
        found |= shard
    return found


def test_each_word_has_its_episodes_with_the_first_turn(tmp_path: Path) -> None:
    run = load(write(tmp_path / "run", ["a key", "Wall, key"], ["wall"]))
    words = words_of(build_index(run))
    assert words["key"] == [0, 1]
    assert {tuple(words["wall"][n : n + 2]) for n in (0, 2)} == {(0, 2), (1, 1)}
    assert "a" not in words
    keys = [hit.row.episode for hit in search(run, Query())]
    assert keys == ["train/0000", "train/0001"], "the numbers of episodes are those of the page's rows"


def test_words_of_other_scripts_are_found_and_markup_is_none(tmp_path: Path) -> None:
    words = words_of(build_index(load(write(tmp_path / "run", ["Schlüssel 日本語", HOSTILE]))))
    assert {"schlüssel", "日本語"} <= words.keys()
    assert not [word for word in words if not word.replace("_", "x").isalnum()]


def test_beyond_its_limit_the_most_common_words_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load(write(tmp_path / "run", ["wall one"], ["wall two"], ["wall three"]))
    monkeypatch.setattr("speedrunner.pages.search_index.POSTINGS", 5)
    index = build_index(run)
    assert "wall" not in words_of(index)
    assert {"one", "two", "three"} <= words_of(index).keys()
    assert index.omitted >= 1


@pytest.mark.parametrize(
    ("word", "shard"), [("ab", (31 * 97 + 98) % 64), ("日本", (31 * 0x65E5 + 0x672C) % 64)]
)
def test_a_word_s_file_is_computed_from_its_first_two_utf_16_units(word: str, shard: int) -> None:
    assert shard_of(word) == shard
    assert shard_of(f"{word}c") == shard
