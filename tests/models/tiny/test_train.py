"""The training: it learns, and what it exports can be served, as the committed weights are."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from models.tiny import train, training_corpus
from models.tiny.actor_examples import Example, snapshots
from models.tiny.train import Recipe, Stage, new_model
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import model_path

STAGES = [
    Stage(tokens=3_000, batch=256, rate=3e-3, constant=0.5, mix={"snapshots": 1.0}),
    Stage(tokens=2_000, batch=256, rate=3e-3, constant=0.5, mix={"snapshots": 0.5, "plain": 0.5}),
]
SMALL = msgspec.structs.replace(
    Recipe.read(),
    stages=STAGES,
    network={**Recipe.read().network, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return training_corpus.reader_of_bytes(tmp_path_factory.mktemp("tokenizer"), SMALL.context)


@pytest.fixture(scope="module")
def sources(tokenizer: ChatTokenizer) -> dict[str, list[Example]]:
    return {
        name: list(islice(snapshots(tokenizer, seed), 30)) for seed, name in enumerate(("snapshots", "plain"))
    }


@pytest.mark.slow
def test_the_training_learns(
    tokenizer: ChatTokenizer,
    sources: dict[str, list[Example]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(train, "REPORTED_EVERY", 5)
    model = train.train(SMALL, tokenizer, sources)
    lines = capsys.readouterr().out.splitlines()
    first, *_, last = (float(line.partition("loss ")[2]) for line in lines)
    assert lines[-1].startswith(f"stage {len(STAGES)}: 100%")
    assert last < first
    assert model.config.hidden_size == 16


@pytest.mark.slow
def test_what_is_exported_is_a_model_folder(
    tokenizer: ChatTokenizer, sources: dict[str, list[Example]], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = new_model(SMALL, tokenizer)
    train.export(model, tokenizer, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.num_parameters() == model.num_parameters()
    assert loaded.dtype is torch.bfloat16
    assert ChatTokenizer(tmp_path).decode(tokenizer.outside_text("a red ball")) == "a red ball"


def test_the_committed_tokenizer_and_network_have_as_many_entries() -> None:
    config = json.loads((train.WEIGHTS / "config.json").read_bytes())
    assert len(ChatTokenizer(train.WEIGHTS).huggingface) == config["vocab_size"]
    assert config["max_position_embeddings"] >= load_model_config("tiny").context


def test_the_committed_weights_are_what_the_model_config_serves() -> None:
    assert Path(model_path(load_model_config("tiny"))) == train.WEIGHTS
    assert load_model_config("tiny").caveat
