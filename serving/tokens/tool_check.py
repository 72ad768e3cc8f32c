"""Check, before a tool is offered, that a model's calls of it can be decoded and read.

The engine's own grammar library compiles the tool's grammar against the served tokenizer. Then legal calls
are drawn from it at random, token by token. Each must read back as a call that satisfies the tool's schema.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from serving.errors import InvalidCall, InvalidTool
from serving.tokens.formats import ToolFormat
from serving.tokens.grammar import structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec

if TYPE_CHECKING:
    import xgrammar

WALKS = 8
"""Number of calls that are drawn for each tool."""

DRAWN_STRING_TOKENS = 16
"""Bound of each string in these calls. Random text would fill the true bound, which takes long and shows
nothing more."""


class ToolCheck:
    """Checks tools for one tokenizer and one native format of tool calls.

    Args:
        string_tokens: bound of each string argument in the grammar that the engine will get.
    """

    def __init__(self, tokenizer: ChatTokenizer, tool_format: ToolFormat, string_tokens: int) -> None:
        import xgrammar  # heavy

        self._tokenizer = tokenizer
        self._format = tool_format
        self._string_tokens = string_tokens
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer.huggingface)
        self._size: int = info.vocab_size
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def check(self, tool: ToolSpec) -> None:
        """Compile the grammar of the tool's calls and draw some calls. Raises `InvalidTool` if one fails."""
        self._compile_grammar(tool, self._string_tokens)
        drawn = self._compile_grammar(tool, min(self._string_tokens, DRAWN_STRING_TOKENS))
        rng = random.Random(0)  # the same tool gets the same verdict each time
        with _unheard():
            walks = [self._draw(drawn, rng) for _ in range(WALKS)]
        for ids in walks:
            text = self._tokenizer.decode(ids)
            try:
                self._format.parse(text, {tool.name: tool})
            except InvalidCall as error:
                problem = f"a call that its schema allows cannot be read: {error} (the call: {text!r})"
                raise InvalidTool(f"{tool.name}: {problem}") from error

    def _compile_grammar(self, tool: ToolSpec, string_tokens: int) -> xgrammar.CompiledGrammar:
        tag = structural_tag(self._format.call(tool, string_tokens))
        try:
            return self._compiler.compile_structural_tag(tag)
        except Exception as error:  # the library raises several kinds
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidTool(f"{tool.name}: its calls cannot be decoded: {reason}") from error

    def _draw(self, grammar: xgrammar.CompiledGrammar, rng: random.Random) -> list[int]:
        """Return the token ids of one call, each drawn uniformly from the allowed ones."""
        import numpy as np
        import xgrammar

        matcher = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
        mask = xgrammar.allocate_token_bitmask(1, self._size)
        ids: list[int] = []
        while not matcher.is_terminated():  # grammars are bounded, so it ends
            matcher.fill_next_token_bitmask(mask)
            bits = np.unpackbits(mask.numpy().view(np.uint8), bitorder="little")[: self._size]
            allowed = np.flatnonzero(bits)
            if not len(allowed):
                break  # the incomplete call will not read back
            ids.append(int(rng.choice(allowed)))
            matcher.accept_token(ids[-1])
        return ids


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence standard error. The library warns there, from C++ and without a switch, about each string that
    could not end at its bound (for example within a character of several tokens) and ends right after it."""
    heard, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(heard, 2)
        os.close(heard)
        os.close(nowhere)
