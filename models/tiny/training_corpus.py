"""Creates the bundled model's tokenizer and its training examples, by source.

The tokenizer is a byte-level BPE with one token for each phrase that prompts and programs repeat. A part that
varies (a thing's name, a digit, a word of a skill's documentation) is a separate token, so that the model can
copy it. The text around it takes as few tokens as possible.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from envs.babyai import ACTIONS
from models.tiny.actor_examples import Example, Written, episodes, snapshots
from models.tiny.teachers.scripted_inducer import LINES
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.results import load

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
KINDS = ("ball", "box", "key")
NAMES = [f"{color} {kind}" for color in COLORS for kind in KINDS]
THINGS = [f"{article}{name}" for article in ("a ", "the ", "") for name in NAMES]
"""Things with and without articles. Observations use "a", missions mostly "the"."""

FRAMES = (
    *(f'\n{{"name": "{action}", "arguments": {{}}}}\n' for action in ACTIONS),
    *('\n{"name": "', '", "arguments": {}}\n', '", "arguments": {"', '": "', '"}}\n', '", "', "\n\n"),
    *('{"type": "function", "function": {"name": "', '", "description": "'),
    *(
        '", "parameters": {"type": "object", "properties": {"',
        '": {"type": "string"}',
        ', "',
        '}, "required": ["',
    ),
    *('"], "additionalProperties": false}}}', '": {"type": "string"}}, "required": ["'),
    '", "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": false}}}',
)
"""Fixed text around tools and calls."""

BORDERS = re.compile("|".join(["\n", r"\\n", " ?[0-9]", *THINGS, *map(re.escape, (*SPECIAL, *ADDED))]))
"""Boundaries of phrases: line ends (plain and in JSON), control tokens and parts that vary."""

_THING = rf"(?:a |the )?(?:{'|'.join(COLORS)}) (?:{'|'.join(KINDS)})"
WORD = rf" (?={_THING})| ?[0-9]| ?[A-Za-z]+|_[A-Za-z]+| +|[^A-Za-z0-9_ ]|_"
"""A piece of any other text. Names are split at their underscores."""


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the tokenizer."""

    sample: int
    phrase_share: float
    words: int


def phrases(texts: Iterable[str], at_least: int) -> list[str]:
    """Return the pieces between borders that have two or more words and occur in `at_least` texts or more."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({piece for piece in BORDERS.split(text) if len(piece.split()) > 1})
    return sorted(piece for piece, count in counts.items() if count >= at_least)


def build_tokenizer(
    known: Sequence[str], texts: Iterable[str], chat_template: str, *, words: int, context: int
) -> PreTrainedTokenizerBase:
    """Build the tokenizer.

    Args:
        known: the phrases.
        texts: training texts for the remaining entries.
        words: number of entries learnt from `texts`, bytes included.
        context: the model's context length in tokens.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    known = [phrase for phrase in {**dict.fromkeys([*known, *FRAMES, *THINGS])} if phrase]
    words_only = [r"\n", r"\\n", WORD]
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def split(pieces: Sequence[str]) -> pre_tokenizers.PreTokenizer:
        by_pattern = pre_tokenizers.Split(Regex("|".join(pieces)), behavior="isolated")
        return pre_tokenizers.Sequence([by_pattern, in_bytes])

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = split(words_only)
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=16,
        min_frequency=2,
    )
    learner.train_from_iterator(texts, trainer)
    learnt = learner.get_vocab()
    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    spelled = ("".join(piece for piece, _ in in_bytes.pre_tokenize_str(phrase)) for phrase in known)
    entries = dict.fromkeys([*sorted(learnt, key=learnt.__getitem__), *spelled])
    numbered = {each: number for number, each in enumerate(entries)}
    bpe = Tokenizer(models.BPE(vocab=numbered, merges=merges, ignore_merges=True))
    longest_first = sorted(known, key=len, reverse=True)
    escaped = [re.sub(r"([\\.^$|?*+()\[\]{}\-#])", r"\\\1", phrase) for phrase in longest_first]
    bpe.pre_tokenizer = split([*escaped, *words_only])
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        chat_template=chat_template,
    )


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
        tools = next(row.tools for row in data.tools if row.role == "inducer")
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
    made_of: Vocabulary, sources: Sequence[str], runs: Path, context: int, folder: Path
) -> None:
    """Build the tokenizer and write it to `folder`, with the chat template."""
    with TemporaryDirectory() as raw:
        reader = reader_of_bytes(Path(raw), context)
    known = {*LINES}
    texts: list[str] = []
    for name in sources:
        sample = [
            reader.decode(example.ids) for example in islice(_source(reader, name, -1, runs), made_of.sample)
        ]
        known |= {*phrases(sample, max(2, int(made_of.phrase_share * len(sample))))}
        texts += sample
    made = build_tokenizer(sorted(known), texts, TEMPLATE, words=made_of.words, context=context)
    made.save_pretrained(folder)


def reader_of_bytes(folder: Path, context: int) -> ChatTokenizer:
    """Write a tokenizer without words to `folder` and load it, for use before the real one exists."""
    build_tokenizer([], [], TEMPLATE, words=BYTES, context=context).save_pretrained(folder)
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
        found[name] = [example for part in parts for example in part if len(example.ids) <= LONGEST]
        lengths = [len(example.ids) for example in found[name]]
        print(f"{name}: {len(lengths):,} examples, {sum(lengths):,} tokens, at most {max(lengths):,}")
    return found
