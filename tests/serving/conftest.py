"""Each tool format with a model that uses it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from serving.cards import load_card, prepare
from serving.tokens.formats import FORMATS, ToolFormat
from serving.tokens.grammar import Part

if TYPE_CHECKING:
    from tests.grammar_walks import Walks

SERVED_BY = {"qwen3_json": "tiny", "qwen3_xml": "tiny-hybrid"}


@dataclass
class Served:
    """A format, with the folder of a model that uses it."""

    name: str
    format: ToolFormat
    folder: str

    @cached_property
    def walks(self) -> Walks:
        """Answers within grammars, in the model's tokens."""
        from tests.grammar_walks import Walks  # which imports torch

        return Walks(self.folder)

    @cached_property
    def template(self) -> Any:
        """The model's tokenizer, for its chat template."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    def rendered(self, name: str, arguments: dict[str, Any]) -> str:
        """What the model's chat template writes for a call."""
        message = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        text = str(self.template.apply_chat_template([message], tokenize=False))
        return text[text.index("<tool_call>") :].removesuffix("<|im_end|>\n")

    def read(self, ids: list[int]) -> str:
        """An answer as a conversation reads it.

        In XML a character that was never completed becomes U+FFFD; JSON's grammar lets none begin.
        """
        errors = "replace" if self.name == "qwen3_xml" else "strict"
        return self.walks.join(ids).decode(errors=errors)

    def walk(self, part: Part, seed: str, prefer: Callable[[bytes], bool] | None = None) -> str:
        """A random answer, which keeps to the grammar's bound."""
        ids = self.walks.walk(part, random.Random(seed), prefer)
        assert len(ids) <= part.tokens + 1
        return self.read(ids)


@pytest.fixture(scope="module", params=SERVED_BY)
def served(request: pytest.FixtureRequest) -> Served:
    """Each format in turn."""
    folder = prepare(load_card(SERVED_BY[request.param]), lambda line: None)
    return Served(request.param, FORMATS[request.param], folder)
