"""The configurations in `models/`: what they say, what they give each GPU, and shapes that can be made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.engine.capacity import shape_of
from serving.model_configs import CHECKOUT, adapt, list_model_configs, load_model_config
from serving.sizing import cache_on, fit
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.weights import prepare
from tests.gpu_kinds import GPUS, SHAPES, with_config

MODEL_CONFIGS = {name: load_model_config(name) for name in list_model_configs()}
SERVED = {name: model_config for name, model_config in MODEL_CONFIGS.items() if not model_config.hosted}
ON_GPUS = {name: model_config for name, model_config in MODEL_CONFIGS.items() if model_config.gpus}


@pytest.mark.parametrize("name", sorted(MODEL_CONFIGS))
class TestEveryCard:
    def test_is_named_like_its_file_and_says_what_was_tried(self, name: str) -> None:
        model_config = MODEL_CONFIGS[name]
        assert model_config.name == name
        assert model_config.tried.endswith(".")

    def test_a_hub_model_is_pinned_to_a_commit(self, name: str) -> None:
        model_config = MODEL_CONFIGS[name]
        assert model_config.id is None or re.fullmatch("[0-9a-f]{40}", str(model_config.revision))

    def test_a_server_that_constrains_calls_and_reports_its_cache_is_asked_for(self, name: str) -> None:
        if name in SERVED:
            flags = SERVED[name].server.flags
            assert flags["structured-outputs-config"] == {"backend": "xgrammar"}
            assert "reasoning-parser" not in flags  # it would hold a grammar back until the thinking's end
            assert flags["enable-prompt-tokens-details"] is True
            assert flags["generation-config"] == "vllm"  # sampling is the model config's


@pytest.mark.parametrize("name", sorted(ON_GPUS))
class TestEveryGpuCard:
    def test_its_context_is_the_models_limit(self, name: str) -> None:
        model_config = ON_GPUS[name]
        assert model_config.context == SHAPES[str(model_config.shape)]["max_position_embeddings"]

    def test_what_depends_on_the_gpus_memory_is_left_to_the_start(self, name: str, tmp_path: Path) -> None:
        model_config = ON_GPUS[name]
        assert not {"max-num-seqs", "max-num-batched-tokens"} & set(model_config.server.flags)
        flags = fit(with_config(model_config, tmp_path), [GPUS["H200"]]).server.flags
        assert flags["max-num-seqs"]
        assert flags["max-num-batched-tokens"] == 8192

    def test_its_kind_of_cache_is_its_shape_s(self, name: str) -> None:
        model_config = ON_GPUS[name]
        shape = shape_of(SHAPES[str(model_config.shape)])
        assert shape is not None
        assert (model_config.cache == "hybrid") == shape.is_hybrid


TABLE = {
    "qwen3.5-27b": ("H100", "H200"),
    "qwen3.5-27b-2gpu": ("H100", "H200"),
    "qwen3.5-27b-4x48gb": ("A6000",),
    "qwen3.5-27b-fp8": ("H100",),
    "qwen3.6-27b": ("H100",),
    "qwen3.8-27b": ("H100",),
    "qwen3.8-27b-fp8": ("H100",),
    "qwen3.5-9b": ("H100", "A6000"),
    "qwen3.5-4b": ("A10G",),
    "qwen3-8b": ("H100",),
    "qwen3-4b-instruct": ("A6000",),
    "llama-3.1-8b-instruct": ("H100",),
}
"""What docs/gpu.md shows: configurations and kinds of GPUs."""


def row(name: str, kind: str, folder: Path) -> str:
    """One line of the table in docs/gpu.md."""
    gpus = [GPUS[kind]]
    model_config = fit(with_config(ON_GPUS[name], folder), gpus)
    cache = cache_on(model_config, gpus)
    assert cache is not None
    kept = " | ".join(str(cache.conversations(tokens)) for tokens in (8192, 32_768, model_config.context))
    flags = model_config.server.flags
    return (
        f"| `{name}` | {model_config.gpus} x {kind} | {model_config.context:,} | "
        f"{flags['max-num-seqs']} | {kept} |"
    )


def test_the_docs_table_is_the_arithmetics(tmp_path: Path) -> None:
    rows = [row(name, kind, tmp_path) for name, kinds in TABLE.items() for kind in kinds]
    text = (CHECKOUT / "docs" / "gpu.md").read_text("utf-8")
    assert re.findall(r"^\| `[^`]+` \| \d+ x .*$", text, re.MULTILINE) == rows
    assert set(TABLE) == set(ON_GPUS)


def test_every_shape_has_a_model_config() -> None:
    assert set(SHAPES) == {model_config.shape for model_config in ON_GPUS.values()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config_class"),
    [
        ("qwen3.5-27b-fp8", "Qwen3_5TextConfig"),
        ("llama-3.1-8b-instruct", "LlamaConfig"),
    ],
)
def test_a_shape_is_a_model_folder_without_weights(name: str, config_class: str) -> None:
    from transformers import AutoConfig

    model_config = adapt(MODEL_CONFIGS[name], load_format="dummy")
    folder = Path(prepare(model_config, lambda line: None))
    made = (folder / "config.json").stat().st_mtime_ns
    assert prepare(model_config, lambda line: None) == str(folder)
    assert (folder / "config.json").stat().st_mtime_ns == made  # it was left alone
    assert not list(folder.glob("*.safetensors"))
    config = AutoConfig.from_pretrained(folder)
    assert type(config).__name__ == config_class
    tokenizer = ChatTokenizer(folder)
    assert len(tokenizer.huggingface) == config.vocab_size
    frame = FORMATS[str(model_config.tool_format)].frame
    assert tokenizer.control_id(frame.end_of_turn) == config.eos_token_id
    ends = tokenizer.control_ids((frame.end_of_turn, *frame.other_ends))
    assert len(ends) == 1 + len(frame.other_ends)
    assert max(ends) < config.vocab_size

    go = ToolSpec("go", "Walk.", {"type": "object", "properties": {"steps": {"type": "integer"}}})
    prompt, _ = tokenizer.first_prompt([{"role": "user", "content": "Go on."}], [go])
    assert "Walk." in tokenizer.decode(prompt)


@pytest.mark.slow
def test_a_shape_s_further_tokens_are_text_that_no_encoding_uses(tiny_tokenizer: ChatTokenizer) -> None:
    wide = ChatTokenizer(prepare(adapt(MODEL_CONFIGS["qwen3-8b"], load_format="dummy"), lambda line: None))
    text = "You see a red ball 2 steps forward; turn left, then pick it up."
    assert wide.outside_text(text) == tiny_tokenizer.outside_text(text)
    assert all(wide.decode([id_]).isascii() for id_ in range(100_000, 100_100))
