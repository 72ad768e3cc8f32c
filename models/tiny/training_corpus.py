"""Creates the bundled model's tokenizer and its training examples, by source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from models.tiny import vocabulary
from models.tiny.actor_examples import Example, episodes, snapshots
from models.tiny.inducer_examples import sessions
from models.tiny.teachers import taught_programs
from models.tiny.training_recipe import Vocabulary
from serving.tokens.tokenizer import ChatTokenizer

TEMPLATE = Path(__file__).parents[1] / "random" / "template.jinja"
LONGEST = 3072
"""Maximum tokens of an example. Longer ones are left out: a step's time grows with their square."""

BYTES = 256
"""Size of a vocabulary that has only bytes."""

PART = 500
"""Number of examples that a process creates at a time."""


def _source(tokenizer: ChatTokenizer, name: str, seed: int, runs: Path) -> Iterator[Example]:
    """Return the examples of a source. `sleeps` end with the recorded runs, all others are endless."""
    match name:
        case "snapshots":
            return snapshots(tokenizer, seed)
        case "plain":
            return episodes(tokenizer, seed, skilled=0.0)
        case "skilled":
            return episodes(tokenizer, seed, skilled=1.0)
        case "sleeps":
            return sessions(tokenizer, runs)
    raise ValueError(f"no source {name!r}")


def make_tokenizer(
    made_of: Vocabulary, sources: Sequence[str], runs: Path, context: int, folder: Path
) -> None:
    """Build the tokenizer and write it to `folder`, with the chat template."""
    template = TEMPLATE.read_text(encoding="utf-8")
    with TemporaryDirectory() as raw:
        reader = reader_of_bytes(Path(raw), context)
    known = {*taught_programs.LINES}
    texts: list[str] = []
    for name in sources:
        sample = [reader.decode(each.ids) for each in islice(_source(reader, name, -1, runs), made_of.sample)]
        known |= {*vocabulary.phrases(sample, max(2, int(made_of.phrase_share * len(sample))))}
        texts += sample
    made = vocabulary.build_tokenizer(sorted(known), texts, template, words=made_of.words, context=context)
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    made.save_pretrained(unfinished)
    unfinished.rename(folder)


def reader_of_bytes(folder: Path, context: int) -> ChatTokenizer:
    """Write a tokenizer without words to `folder` and load it, for use before the real one exists."""
    template = TEMPLATE.read_text(encoding="utf-8")
    vocabulary.build_tokenizer([], [], template, words=BYTES, context=context).save_pretrained(folder)
    return ChatTokenizer(folder)


def make(
    counts: dict[str, int], runs: Path, folder: Path, progress: Callable[[str], None]
) -> dict[str, list[Example]]:
    """Create the examples of each source.

    Args:
        counts: number of examples by source, before those over `LONGEST` are left out; `sleeps` takes every
            recorded sleep.
        folder: has the tokenizer.
    """
    found = {}
    for name, count in counts.items():
        progress(f"{name}: of {count:,} runs" if name == "sleeps" else f"{name}: {count:,} examples")
        starts = range(0, count, PART)
        parts = [(folder, name, n, runs, min(PART, count - start)) for n, start in enumerate(starts)]
        if name == "sleeps":
            parts = [(folder, name, 0, runs, 10**9)]
        with get_context("spawn").Pool(2) as pool:
            found[name] = [each for part in pool.imap(_part, parts) for each in part]
    return found


def _part(work: tuple[Path, str, int, Path, int]) -> list[Example]:
    folder, name, part, runs, count = work
    made = islice(_source(ChatTokenizer(folder), name, part, runs), count)
    return [each for each in made if len(each.ids) <= LONGEST]
