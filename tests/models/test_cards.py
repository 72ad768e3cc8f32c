"""The cards in `models/`: the engine takes their flags, their arithmetic holds, their shapes can be made."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from serving.cards import CHECKOUT, MODELS, adapted, list_cards, load_card
from serving.engine.metrics import blocks_of
from serving.model_card import ModelCard
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.usage import Prices
from serving.weights import prepare, recipe_command

CARDS = {name: load_card(name) for name in list_cards()}
SERVED = {name: card for name, card in CARDS.items() if not card.hosted}
ON_GPUS = {name: card for name, card in CARDS.items() if card.gpus}

MEMORY_GIB = {
    "qwen3.5-27b": 80,
    "qwen3.5-27b-2gpu": 80,
    "qwen3.5-27b-4x48gb": 48,
    "qwen3.5-27b-fp8": 80,
    "qwen3.5-9b": 48,
    "qwen3.5-4b": 24,
    "qwen3-8b": 48,
    "qwen3-4b-instruct": 48,
    "llama-3.1-8b-instruct": 48,
}
"""Of one of the smallest GPUs that each card is for."""


def shapes() -> dict[str, dict[str, Any]]:
    """The configurations that the recipe knows."""
    spec = importlib.util.spec_from_file_location("shapes_build", MODELS / "shapes" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known: dict[str, dict[str, Any]] = module.shapes()
    return known


SHAPES = shapes()


@pytest.mark.parametrize("name", sorted(CARDS))
class TestEveryCard:
    def test_is_named_like_its_file_and_says_what_was_tried(self, name: str) -> None:
        card = CARDS[name]
        assert card.name == name
        assert card.tried.endswith(".")

    def test_a_hub_model_is_pinned_to_a_commit(self, name: str) -> None:
        card = CARDS[name]
        assert card.id is None or re.fullmatch("[0-9a-f]{40}", str(card.revision))

    def test_a_server_that_constrains_calls_and_reports_its_cache_is_asked_for(self, name: str) -> None:
        if name in SERVED:
            flags = SERVED[name].server.flags
            assert flags["structured-outputs-config"] == {"backend": "xgrammar"}
            assert "reasoning-parser" not in flags  # it would hold a grammar back until the thinking's end
            assert flags["enable-prompt-tokens-details"] is True
            assert flags["generation-config"] == "vllm"  # sampling is the card's

    def test_thinking_budgets_prices_and_efforts_are_the_stated_ones(self, name: str) -> None:
        card = CARDS[name]
        if name in ON_GPUS:
            assert card.prices == Prices(uncached=0, cached=0, output=0)
            thinks = card.thinking != "none"
            assert card.role("actor").thinking_tokens == (256 if thinks else 0)
            assert card.role("inducer").thinking_tokens == (2048 if thinks else 0)
        if card.hosted:
            assert card.role("actor").reasoning_effort == "low"
            assert card.role("inducer").reasoning_effort == "medium"


def hybrid(shape: dict[str, Any]) -> bool:
    return "full_attention_interval" in shape


def weights_bytes(shape: dict[str, Any]) -> int:
    """Bytes of the matrices: bfloat16, or one byte each in the layers of an fp8 model."""
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    heads = shape["num_attention_heads"] * shape["head_dim"]
    keys = shape["num_key_value_heads"] * shape["head_dim"]
    attention = hidden * (heads * (2 if shape.get("attn_output_gate") else 1) + 2 * keys + heads)
    total = 3 * layers * hidden * shape["intermediate_size"]
    if hybrid(shape):
        full = layers // shape["full_attention_interval"]
        linear_keys = shape["linear_num_key_heads"] * shape["linear_key_head_dim"]
        linear_values = shape["linear_num_value_heads"] * shape["linear_value_head_dim"]
        gates = 2 * shape["linear_num_value_heads"]
        linear = hidden * (2 * linear_keys + 3 * linear_values + gates)
        total += full * attention + (layers - full) * linear
    else:
        total += layers * attention
    embeddings = shape["vocab_size"] * hidden * (1 if shape["tie_word_embeddings"] else 2)
    return total * (1 if "quantization_config" in shape else 2) + 2 * embeddings


def block(shape: dict[str, Any]) -> tuple[int, int]:
    """Tokens and bytes of one block of the cache, over all GPUs."""
    token = 2 * 2 * shape["num_key_value_heads"] * shape["head_dim"]  # key and value, bfloat16, one layer
    if not hybrid(shape):
        return 16, 16 * token * shape["num_hidden_layers"]
    values = shape["linear_num_value_heads"] * shape["linear_value_head_dim"]
    channels = 2 * shape["linear_num_key_heads"] * shape["linear_key_head_dim"] + values
    state = 2 * channels * (shape["linear_conv_kernel_dim"] - 1) + 4 * values * shape["linear_key_head_dim"]
    tokens = 16 * ceil(state / (16 * token))  # so many that a layer's block has room for one state
    return tokens, tokens * token * shape["num_hidden_layers"] // shape["full_attention_interval"]


def conversations(card: ModelCard, shape: dict[str, Any], tokens: int) -> int:
    """docs/gpu.md, "What a cache holds"."""
    per_gpu = 0.9 * MEMORY_GIB[card.name] * 2**30 - 4e9
    block_tokens, block_bytes = block(shape)
    blocks = int((card.gpus * per_gpu - weights_bytes(shape)) / block_bytes)
    return blocks // blocks_of(tokens, block_tokens, hybrid=hybrid(shape))


@pytest.mark.parametrize("name", sorted(ON_GPUS))
class TestEveryGpuCard:
    def test_what_its_cache_holds_is_the_arithmetic_s_result(self, name: str) -> None:
        card, shape = ON_GPUS[name], SHAPES[str(ON_GPUS[name].shape)]
        assert [(held.conversations, held.tokens, held.by) for held in card.holds] == [
            (conversations(card, shape, tokens), tokens, "arithmetic")
            for tokens in (8192, 32_768, card.context)
        ]

    def test_it_holds_at_least_one_conversation_of_its_context(self, name: str) -> None:
        assert ON_GPUS[name].holds[-1].conversations >= 1
        assert ON_GPUS[name].context <= SHAPES[str(ON_GPUS[name].shape)]["max_position_embeddings"]

    def test_its_kind_of_cache_is_its_shape_s(self, name: str) -> None:
        card = ON_GPUS[name]
        assert (card.cache == "hybrid") == hybrid(SHAPES[str(card.shape)])


def test_the_arithmetic_agrees_with_the_published_sizes() -> None:
    names = ("qwen3.5-27b", "qwen3-8b", "llama-3.1-8b-instruct")
    assert [round(weights_bytes(SHAPES[name]) / 2e9, 1) for name in names] == [26.9, 8.2, 8.0]
    assert block(SHAPES["qwen3.5-27b"]) == (784, 51_380_224)
    assert block(SHAPES["qwen3.5-9b"]) == block(SHAPES["qwen3.5-4b"]) == (528, 17_301_504)


def test_every_shape_has_a_card() -> None:
    assert set(SHAPES) == {card.shape for card in ON_GPUS.values()}


@pytest.mark.parametrize(
    ("name", "config_class"),
    [
        ("qwen3.5-27b-fp8", "Qwen3_5TextConfig"),
        ("qwen3-8b", "Qwen3Config"),
        ("llama-3.1-8b-instruct", "LlamaConfig"),
    ],
)
def test_a_shape_is_a_model_folder_without_weights(name: str, config_class: str) -> None:
    from transformers import AutoConfig

    card = adapted(CARDS[name], load_format="dummy")
    lines: list[str] = []
    folder = Path(prepare(card, lines.append))
    lines.clear()
    assert prepare(card, lines.append) == str(folder)
    assert lines == []  # it is there
    assert not list(folder.glob("*.safetensors"))
    config = AutoConfig.from_pretrained(folder)
    assert type(config).__name__ == config_class
    tokenizer = ChatTokenizer(folder)
    assert len(tokenizer.huggingface) == config.vocab_size
    frame = FORMATS[str(card.tool_format)].FRAME
    assert tokenizer.control_id(frame.end_of_turn) == config.eos_token_id
    ends = tokenizer.control_ids((frame.end_of_turn, *frame.other_ends))
    assert len(ends) == 1 + len(frame.other_ends)
    assert max(ends) < config.vocab_size

    go = ToolSpec("go", "Walk.", {"type": "object", "properties": {"steps": {"type": "integer"}}})
    prompt, _ = tokenizer.first_prompt([{"role": "user", "content": "Go on."}], [go])
    assert "Walk." in tokenizer.decode(prompt)


def test_a_shape_s_further_tokens_are_text_that_no_encoding_uses(tiny_tokenizer: ChatTokenizer) -> None:
    wide = ChatTokenizer(prepare(adapted(CARDS["qwen3-8b"], load_format="dummy"), lambda line: None))
    text = "You see a red ball 2 steps forward; turn left, then pick it up."
    assert wide.outside_text(text) == tiny_tokenizer.outside_text(text)
    assert all(wide.decode([id_]).isascii() for id_ in range(100_000, 100_100))


def test_an_unknown_shape_is_told() -> None:
    command = recipe_command(adapted(CARDS["qwen3-8b"], load_format="dummy"))
    assert command is not None
    done = subprocess.run(
        [each.replace("qwen3-8b", "qwen9") for each in command], capture_output=True, text=True, cwd=CHECKOUT
    )
    assert done.returncode == 2
    assert "invalid choice: 'qwen9'" in done.stderr
