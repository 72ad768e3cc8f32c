"""Each tool format with a model that uses it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from serving.model_config import ModelConfig
from serving.tokens.formats import FORMATS, ToolFormat
from serving.tokens.grammar import Part
from serving.tokens.tokenizer import ChatTokenizer
from tests.bundled_models import bundled_folder
from tests.llama3 import make_folder

if TYPE_CHECKING:
    from tests.grammar_walks import Walks

SERVED_BY = {"qwen3_json": "tiny-random", "qwen3_xml": "tiny-hybrid", "llama3_json": None}
"""Model configs of models that use a format; of Llama 3 there is only a tokenizer."""


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

        return Walks(self.folder, self.format.FRAME.end_of_turn)

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        """As conversations use it."""
        return ChatTokenizer(self.folder)

    @cached_property
    def template(self) -> Any:
        """The model's tokenizer, for its chat template."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    def rendered(self, name: str, arguments: dict[str, Any]) -> str:
        """What the model's chat template writes for a call."""
        message = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        text = str(self.template.apply_chat_template([message], tokenize=False))
        begin = '{"name"' if self.name == "llama3_json" else "<tool_call>"
        return text[text.index(begin) :].rstrip("\n").removesuffix(self.format.FRAME.end_of_turn)

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


@pytest.fixture(scope="session")
def bare(tiny_model_config: ModelConfig, tiny_folder: str) -> ModelConfig:
    """The random model's configuration without its recipe, which would run each time."""
    return replace(tiny_model_config, recipe=None)


@cache
def serve(name: str, llama3: str) -> Served:
    """One for all tests of a format, since its grammars take long to make."""
    model_config = SERVED_BY[name]
    return Served(name, FORMATS[name], llama3 if model_config is None else bundled_folder(model_config))


@pytest.fixture(scope="session")
def llama3_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_folder(tmp_path_factory.mktemp("llama3"))


@pytest.fixture(scope="module", params=SERVED_BY)
def served(request: pytest.FixtureRequest, llama3_folder: str) -> Served:
    """Each format in turn."""
    return serve(request.param, llama3_folder)


@pytest.fixture(scope="session")
def qwen_json(llama3_folder: str) -> Served:
    return serve("qwen3_json", llama3_folder)


@pytest.fixture(scope="session")
def qwen_xml(llama3_folder: str) -> Served:
    return serve("qwen3_xml", llama3_folder)


@pytest.fixture(scope="session")
def llama3(llama3_folder: str) -> Served:
    return serve("llama3_json", llama3_folder)
