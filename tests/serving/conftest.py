"""Each tool format with a model that uses it, and a hub of models."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import constants
from msgspec.structs import replace

from serving.model_config import ModelConfig
from serving.model_configs import MODELS
from serving.tokens.formats import FORMATS, ToolFormat
from serving.tokens.grammar import Part
from serving.tokens.tokenizer import ChatTokenizer
from tests.hub_server import HubServer, ServeHub

if TYPE_CHECKING:
    from tests.grammar_walks import Walks


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

        return Walks(self.folder, self.format.frame.end_of_turn)

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        """As conversations use it."""
        return ChatTokenizer(self.folder)

    @cached_property
    def template(self) -> Any:
        """The model's tokenizer, for its chat template."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(self.folder)

    def rendered(self, name: str, arguments: dict[str, Any]) -> str:
        """What the model's chat template writes for a call."""
        message = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        text = str(self.template.apply_chat_template([message], tokenize=False))
        begin = '{"name"' if self.name == "llama3_json" else "<tool_call>"
        return text[text.index(begin) :].rstrip("\n").removesuffix(self.format.frame.end_of_turn)

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


@pytest.fixture
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, without a model."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


@pytest.fixture
def serve_hub(empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServeHub]:
    with ExitStack() as hubs:

        def serve_hub(files: Mapping[str, bytes], **options: Any) -> HubServer:
            server = hubs.enter_context(HubServer(files, **options))
            monkeypatch.setattr(constants, "ENDPOINT", server.url)
            template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
            monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            return server

        yield serve_hub


@pytest.fixture(scope="session")
def bare(tiny_model_config: ModelConfig, tiny_folder: str) -> ModelConfig:
    """The random model's configuration without its recipe, which would run each time."""
    return replace(tiny_model_config, recipe=None)


LLAMA3_CONTROL = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>"),
)


def make_llama3(folder: Path, tiny_folder: str) -> str:
    """Write a tokenizer with the control tokens and the turns of Llama 3.1 to a folder."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [*LLAMA3_CONTROL], "eos_token": "<|eot_id|>"})
    tokenizer.chat_template = (MODELS / "shapes" / "llama3.jinja").read_text()
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(tokenizer)}))
    return str(folder)


@pytest.fixture(scope="session")
def all_served(tiny_folder: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Served]:
    """Each format, once for all its tests, since its grammars take long to make."""
    xml = shutil.copytree(tiny_folder, tmp_path_factory.mktemp("xml") / "model")
    shutil.copy(MODELS / "random" / "hybrid.jinja", xml / "chat_template.jinja")
    llama3 = make_llama3(tmp_path_factory.mktemp("llama3"), tiny_folder)
    folders = {"qwen3_json": tiny_folder, "qwen3_xml": str(xml), "llama3_json": llama3}
    return {name: Served(name, FORMATS[name], folder) for name, folder in folders.items()}


@pytest.fixture(scope="module", params=["qwen3_json", "qwen3_xml", "llama3_json"])
def served(request: pytest.FixtureRequest, all_served: dict[str, Served]) -> Served:
    """Each format in turn."""
    return all_served[request.param]


@pytest.fixture(scope="session")
def qwen_json(all_served: dict[str, Served]) -> Served:
    return all_served["qwen3_json"]


@pytest.fixture(scope="session")
def qwen_xml(all_served: dict[str, Served]) -> Served:
    return all_served["qwen3_xml"]


@pytest.fixture(scope="session")
def llama3(all_served: dict[str, Served]) -> Served:
    return all_served["llama3_json"]
