"""Random answers that a structural tag allows, drawn with the engine's own grammar library."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from serving.tokens.grammar import Part, structural_tag

if TYPE_CHECKING:
    import xgrammar


class Walks:
    """Masks and answers for the tokenizer in a model's folder."""

    def __init__(self, folder: str, end: str = "<|im_end|>") -> None:
        import xgrammar  # heavy: it imports torch
        from transformers import PreTrainedTokenizerFast  # `AutoTokenizer` imports all tokenizers

        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.size = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=self.size)
        self.bytes: list[bytes] = info.decoded_vocab
        self.end: int = tokenizer.get_vocab()[end]
        self._compiler = xgrammar.GrammarCompiler(info)
        self._preferred: dict[Callable[[bytes], bool], np.ndarray] = {}

    def accepts(self, part: Part, text: str) -> bool:
        """Whether `part` allows exactly `text`."""
        matcher = self._matcher(part)
        return bool(matcher.accept_string(text)) and bool(matcher.accept_token(self.end))

    def walk(
        self, part: Part, rng: random.Random, prefer: Callable[[bytes], bool] | None = None
    ) -> list[int]:
        """Ids of one answer, the end of the turn included; each id drawn evenly from those allowed.

        Args:
            prefer: draw from the tokens for which it holds, wherever one of them is allowed.
        """
        import xgrammar

        matcher = self._matcher(part)
        mask = xgrammar.allocate_token_bitmask(1, self.size)
        packed = mask.numpy().view(np.uint8)
        preferred = self._which(prefer) if prefer else None
        ids: list[int] = []
        while not matcher.is_terminated():
            assert len(ids) <= part.tokens, f"more than {part.tokens} tokens: {self.join(ids)[-100:]!r}"
            matcher.fill_next_token_bitmask(mask)
            bits = np.unpackbits(packed, bitorder="little")[: self.size].view(bool)
            allowed = (bits if preferred is None else bits & preferred).nonzero()[0]
            if not allowed.size:
                allowed = bits.nonzero()[0]
            assert allowed.size, f"nothing may follow {self.join(ids)[-100:]!r}"
            ids.append(int(allowed[rng.randrange(allowed.size)]))
            assert matcher.accept_token(ids[-1])
        return ids

    def join(self, ids: list[int]) -> bytes:
        """The bytes of an answer, without the end of its turn."""
        return b"".join(self.bytes[token] for token in ids if token != self.end)

    def _which(self, prefer: Callable[[bytes], bool]) -> np.ndarray:
        """For each token whether it is preferred."""
        if prefer not in self._preferred:
            self._preferred[prefer] = np.array([prefer(each) for each in self.bytes], bool)
        return self._preferred[prefer]

    def _matcher(self, part: Part) -> xgrammar.GrammarMatcher:
        import xgrammar

        # Compiled grammars are cached by their text.
        return xgrammar.GrammarMatcher(self._compiler.compile_structural_tag(structural_tag(part)))


def stretches(token: bytes) -> bool:
    """Whether a token ends in the middle of an escape or of a character."""
    if token.endswith(b"\\"):
        return True
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False


def avoids(*signs: bytes) -> Callable[[bytes], bool]:
    """Tokens that hold none of `signs`: what keeps a region from ending."""
    return lambda token: not any(sign in token for sign in signs)
