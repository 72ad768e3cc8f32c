"""The bundled hybrid model's recipe: `models/random/hybrid.py` as the command that it is."""

from __future__ import annotations

import filecmp
from pathlib import Path
from typing import Any

import pytest

from serving.model_configs import load_model_config
from serving.weights import prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(hybrid_folder: Path) -> Path:
    return hybrid_folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_a_build_in_place_of_the_other_recipe_s_has_the_bytes_of_any_other_build(folder: Path) -> None:
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    other = prepare(load_model_config("tiny-hybrid"), lambda line: None)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in Path(other).iterdir())
    assert filecmp.cmpfiles(folder, other, names, shallow=False) == (names, [], [])


def test_the_model_is_a_qwen3_next_with_linear_and_full_attention(folder: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "Qwen3NextForCausalLM"
    assert 1_500_000 < model.num_parameters() < 1_700_000
    assert not model.config.tie_word_embeddings
    assert model.config.layer_types == ["linear_attention"] * 3 + ["full_attention"]
    assert model.config.vocab_size == len(tokenizer) == 2048
    assert model.config.max_position_embeddings == 32_768
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}
