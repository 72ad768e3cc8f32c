"""The probability mass that a grammar forbids at the positions of an answer."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from serving.tokens.grammar import Part, structural_tag
from serving.tokens.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import numpy as np


class RemovedMass(NamedTuple):
    """Bounds of the probability mass on forbidden tokens; only the likeliest tokens are known."""

    at_least: float
    at_most: float


class GrammarMasks:
    """The tokens that grammars allow, computed with the engine's own grammar library."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        import xgrammar  # heavy

        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer.huggingface)
        self._size: int = info.vocab_size
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def allowed(
        self, grammar: Part, answer: Sequence[int], positions: Collection[int]
    ) -> dict[int, np.ndarray]:
        """Return, for positions of an answer, which token ids the grammar allows there (a boolean array).

        Positions after a token that the grammar forbids are missing.
        """
        import numpy as np
        import xgrammar

        matcher = xgrammar.GrammarMatcher(self._compiler.compile_structural_tag(structural_tag(grammar)))
        mask = xgrammar.allocate_token_bitmask(1, self._size)
        found: dict[int, np.ndarray] = {}
        for number, token in enumerate(answer[: max(positions, default=-1) + 1]):
            matcher.fill_next_token_bitmask(mask)  # at each position: budgets count only filled masks
            if number in positions:
                packed = mask.numpy().view(np.uint8)
                found[number] = np.unpackbits(packed, bitorder="little")[: self._size].astype(bool)
            if not matcher.accept_token(token):
                break
        return found


def removed_mass(top: Mapping[int, float], allowed: np.ndarray) -> RemovedMass:
    """Return the mass on forbidden tokens.

    Args:
        top: log-probabilities of the likeliest tokens by id, without the grammar.
        allowed: for each token id, whether the grammar allows it.
    """
    kept = sum(math.exp(each) for token, each in top.items() if token < len(allowed) and allowed[token])
    lost = sum(math.exp(each) for token, each in top.items() if token >= len(allowed) or not allowed[token])
    return RemovedMass(min(lost, 1.0), max(min(1.0 - kept, 1.0), min(lost, 1.0)))
