"""The word index with which static pages search the texts of a run's episodes, without a server.

Each word has the episodes that contain it, with the first turn. Words are spread over small JavaScript files
by their first two characters, so that a search loads only the files that it needs. Pages from a disk cannot
fetch data, but they can load scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import get_args

import msgspec

from speedrunner.pages.search import turn_texts
from speedrunner.store.records import Phase
from speedrunner.store.run_data import RunData

SHARDS = 64
"""Files of an index."""

POSTINGS = 1_000_000
"""Maximum pairs of a word and an episode in an index: about 8 MB. Beyond this, the words of most episodes are
left out."""

WORDS = 300_000
"""Maximum number of words in an index, so that no run takes all memory. Later ones are left out."""

WORD_CHARS = 40
"""Maximum characters of a word; longer ones are left out."""

_WORD = re.compile(rf"\w{{2,{WORD_CHARS}}}(?!\w)")


class SearchIndex(msgspec.Struct, frozen=True):
    """The index of one run.

    Attributes:
        shards: content of the files with words, by number.
        omitted: number of very common words that it lacks.
    """

    shards: dict[int, bytes]
    omitted: int


def build_index(run: RunData) -> SearchIndex:
    """Index the newest attempts at all episodes of a run; this reads all of them. Raises `StorageError`.

    Episodes are numbered in the order of `speedrunner.pages.search.search`.
    """
    numbers = {
        row.episode: number for number, row in enumerate(sorted(run.rows, key=lambda row: row.episode))
    }
    words = _Words()
    for phase in get_args(Phase):
        for played in run.played(phase):
            number = numbers.get(played.episode)
            if number is None:
                continue
            known: set[str] = set()
            for turn_number, turn in enumerate(played.turns, start=1):
                new = {word for text in turn_texts(turn) for word in _words(text)} - known
                known |= new
                words.add(new, number, turn_number)
    words.prune()
    shards: list[dict[str, list[int]]] = [{} for _ in range(SHARDS)]
    for word in sorted(words.found):
        shards[shard_of(word)][word] = words.found[word]
    scripts = {number: _script(number, shard) for number, shard in enumerate(shards) if shard}
    return SearchIndex(scripts, len(words.omitted))


class _Words:
    """Words with the episodes and turns that have them; never more than twice `POSTINGS`."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}
        self.omitted: set[str] = set()
        self._pairs = 0

    def add(self, words: Iterable[str], episode: int, turn: int) -> None:
        """Add the new words of an episode."""
        for word in words:
            known = self.found.get(word)
            if known is not None:
                known += (episode, turn)
            elif word in self.omitted or len(self.found) + len(self.omitted) >= WORDS:
                continue
            else:
                self.found[word] = [episode, turn]
            self._pairs += 1
        if self._pairs > 2 * POSTINGS:
            self.prune()

    def prune(self) -> None:
        """Leave out the most common words until at most `POSTINGS` pairs remain."""
        by_count = sorted(self.found, key=lambda word: (len(self.found[word]), word))
        while self._pairs > POSTINGS:
            word = by_count.pop()
            self._pairs -= len(self.found.pop(word)) // 2
            self.omitted.add(word)


def shard_of(word: str) -> int:
    """Return the file of a word of at least two characters, as view.js computes it."""
    units = word[:2].encode("utf-16-le", "surrogatepass")
    first, second = units[0] + 256 * units[1], units[2] + 256 * units[3]
    return (31 * first + second) % SHARDS


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in _WORD.finditer(text.lower()))


def _script(number: int, shard: dict[str, list[int]]) -> bytes:
    return b"addShard(%d, %s);\n" % (number, msgspec.json.encode(shard))
