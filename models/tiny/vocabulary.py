"""The tokenizer: byte-level BPE with one token for each phrase that prompts and programs repeat.

A part that varies (a thing's name, a digit, a word of a skill's documentation) is a separate token, so that
the model can copy it. The text around it takes as few tokens as possible.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from envs.babyai import ACTIONS

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

    known = [each for each in {**dict.fromkeys([*known, *FRAMES, *THINGS])} if each]
    words_only = [r"\n", r"\\n", WORD]

    def split(pieces: Sequence[str]) -> pre_tokenizers.PreTokenizer:
        by_pattern = pre_tokenizers.Split(Regex("|".join(pieces)), behavior="isolated")
        return pre_tokenizers.Sequence(
            [by_pattern, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )

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
    entries = dict.fromkeys([*sorted(learnt, key=learnt.__getitem__), *map(_spell_bytes, known)])
    numbered = {each: number for number, each in enumerate(entries)}
    bpe = Tokenizer(models.BPE(vocab=numbered, merges=merges, ignore_merges=True))
    longest_first = sorted(known, key=len, reverse=True)
    bpe.pre_tokenizer = split([*map(_escape_phrase, longest_first), *words_only])
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


def _escape_phrase(phrase: str) -> str:
    """Return a phrase escaped for the regular expressions of `tokenizers`."""
    return re.sub(r"([\\.^$|?*+()\[\]{}\-#])", r"\\\1", phrase)


def _spell_bytes(text: str) -> str:
    """Return a text in the letters that represent bytes in a byte-level vocabulary."""
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return "".join(piece for piece, _ in pieces)
