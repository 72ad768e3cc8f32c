"""Creates the bundled model's tokenizer and its training examples, by source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from envs.babyai import BabyAI
from models.tiny import vocabulary
from models.tiny.actor_examples import Example, Written, episodes, snapshots
from models.tiny.teachers import taught_programs
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.methods.speedrunner.speedrunner_method import inducer_tools
from speedrunner.results import load

TEMPLATE = (Path(__file__).parents[1] / "random" / "template.jinja").read_text("utf-8")
LONGEST = 3072
"""Maximum tokens of an example. Longer ones are left out: a step's time grows with their square."""

BYTES = 256
"""Size of a vocabulary that has only bytes."""

PART = 500
"""Number of examples that are drawn with one seed."""


def sessions(tokenizer: ChatTokenizer, runs: Path) -> Iterator[Example]:
    """Yield every sleep of the recorded runs in `runs`, which has one folder per run."""
    for folder in sorted(runs.iterdir()):
        data = load(folder)
        options = data.settings.method.options
        tools = inducer_tools(BabyAI.primitives, interpreter=options.get("interpreter") != "off")
        for sleep in data.sleeps:
            (agent,) = sleep.agents
            written = Written(tokenizer, agent.turns[0].messages, tools)
            for number, turn in enumerate(agent.turns):
                if number:
                    (message,) = turn.messages
                    written.tell(message.content)
                assert turn.call is not None
                refused = turn.executed is None or turn.executed.error is not None
                written.answer(turn.reasoning, turn.call, learnt=not refused)
            yield written.example()


def _source(tokenizer: ChatTokenizer, name: str, seed: int, runs: Path) -> Iterator[Example]:
    """Return the examples of a source. `sleeps` end with the recorded runs, all others are endless."""
    match name:
        case "snapshots":
            return snapshots(tokenizer, seed)
        case "sleeps":
            return sessions(tokenizer, runs)
    return episodes(tokenizer, seed, skilled={"plain": 0.0, "skilled": 1.0}[name])


def make_tokenizer(
    made_of: vocabulary.Vocabulary, sources: Sequence[str], runs: Path, context: int, folder: Path
) -> None:
    """Build the tokenizer and write it to `folder`, with the chat template."""
    with TemporaryDirectory() as raw:
        reader = reader_of_bytes(Path(raw), context)
    known = {*taught_programs.LINES}
    texts: list[str] = []
    for name in sources:
        sample = [reader.decode(each.ids) for each in islice(_source(reader, name, -1, runs), made_of.sample)]
        known |= {*vocabulary.phrases(sample, max(2, int(made_of.phrase_share * len(sample))))}
        texts += sample
    made = vocabulary.build_tokenizer(sorted(known), texts, TEMPLATE, words=made_of.words, context=context)
    made.save_pretrained(folder)


def reader_of_bytes(folder: Path, context: int) -> ChatTokenizer:
    """Write a tokenizer without words to `folder` and load it, for use before the real one exists."""
    vocabulary.build_tokenizer([], [], TEMPLATE, words=BYTES, context=context).save_pretrained(folder)
    return ChatTokenizer(folder)


def make(counts: dict[str, int], runs: Path, tokenizer: ChatTokenizer) -> dict[str, list[Example]]:
    """Create the examples of each source, and print their sizes.

    Args:
        counts: number of examples by source, before those over `LONGEST` are left out; `sleeps` takes every
            recorded sleep.
    """
    found = {}
    for name, count in counts.items():
        starts = [0] if name == "sleeps" else range(0, count, PART)
        sizes = [None if name == "sleeps" else min(PART, count - start) for start in starts]
        parts = (islice(_source(tokenizer, name, seed, runs), size) for seed, size in enumerate(sizes))
        found[name] = [each for part in parts for each in part if len(each.ids) <= LONGEST]
        lengths = [len(each.ids) for each in found[name]]
        print(f"{name}: {len(lengths):,} examples, {sum(lengths):,} tokens, at most {max(lengths):,}")
    return found
