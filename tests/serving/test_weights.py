"""Files of a hub: fetched from a real HTTP server that answers as the hub does, found without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from serving import weights
from serving.deployment import ServiceOptions, deploy
from serving.engine.server import VllmServer
from serving.weights import FilesMissing
from tests.hub_server import COMMIT, MODEL, TEXTS, WEIGHTS, ServeHub, hub_model_config

INDEX = b'{"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}'
SHARDS = {
    weights.INDEX: INDEX,
    "model-00001.safetensors": b"one",
    "model-00002.safetensors": b"two",
}

pytestmark = pytest.mark.usefixtures("empty_hub_cache")


def fetched() -> Path:
    return weights.fetch(MODEL, COMMIT, lambda line: None)


def test_what_serving_takes_is_fetched_and_nothing_else(serve_hub: ServeHub) -> None:
    others = {
        "pytorch_model.bin": b"the same",
        "original/consolidated.safetensors": b"again",
        "README.md": b"",
    }
    server = serve_hub({**TEXTS, **WEIGHTS, **others})
    said: list[str] = []
    folder = weights.fetch(MODEL, COMMIT, said.append)
    assert sorted(server.fetched) == sorted({**TEXTS, **WEIGHTS})
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]
    assert weights.size_bytes(folder) == sum(map(len, {**TEXTS, **WEIGHTS}.values()))
    assert said == [f"fetching {MODEL} into {constants.HF_HUB_CACHE}"]


def test_what_is_lost_is_fetched_again(serve_hub: ServeHub) -> None:
    server = serve_hub({**TEXTS, **SHARDS})
    folder = fetched()
    for name in ("model-00002.safetensors", "tokenizer_config.json"):
        (folder / name).resolve().unlink()
        (folder / name).unlink()
    assert weights.find_folder(MODEL, COMMIT) is None
    server.fetched.clear()
    assert fetched() == folder
    assert sorted(server.fetched) == ["model-00002.safetensors", "tokenizer_config.json"]


def test_the_engine_is_kept_from_asking_for_what_is_there(serve_hub: ServeHub, tmp_path: Path) -> None:
    model_config = hub_model_config(tmp_path)
    line = VllmServer(model_config, tmp_path / "log").shell_line
    assert "HF_HUB_OFFLINE" not in line
    serve_hub({**TEXTS, **WEIGHTS})
    fetched()
    assert " HF_HUB_OFFLINE=1 " in VllmServer(model_config, tmp_path / "log").shell_line


@pytest.mark.parametrize(
    ("options", "model", "commit", "message"),
    [
        ({}, MODEL, "f" * 40, f"{MODEL} cannot be fetched: "),
        ({}, "acme/other", COMMIT, "acme/other cannot be fetched: "),
        ({"refusal": ("GatedRepo", 403)}, MODEL, COMMIT, "gated repo"),
        ({"files": {"config.json": b"{}"}}, MODEL, COMMIT, "is no model that can be served: it lacks"),
    ],
)
def test_what_the_hub_does_not_give_is_one_line(
    serve_hub: ServeHub, options: dict[str, Any], model: str, commit: str, message: str
) -> None:
    serve_hub(**{"files": {**TEXTS, **WEIGHTS}, **options})
    with pytest.raises(FilesMissing) as caught:
        weights.fetch(model, commit, lambda line: None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_alone_are_fetched_once_and_the_engine_fetches_the_weights(
    serve_hub: ServeHub, tmp_path: Path
) -> None:
    server = serve_hub({**TEXTS, **WEIGHTS})
    model_config = hub_model_config(tmp_path)
    folders = {weights.prepare(model_config, print) for _ in range(2)}
    assert folders == {str(weights.cached_folder(MODEL, COMMIT))}
    assert sorted(server.fetched) == sorted(TEXTS)


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("http://127.0.0.1:9", r"http://127\.0\.0\.1:9 cannot be reached \(.*refused\); use `hf download"),
        ("", "HF_HUB_OFFLINE forbids asking the hub; use `hf download"),
    ],
)
async def test_without_the_hub_no_server_starts_for_a_model_without_weights(
    serve_hub: ServeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, message: str
) -> None:
    serve_hub({**TEXTS, **WEIGHTS})
    weights.prepare(model_config := hub_model_config(tmp_path), print)
    newest = weights.fetch_texts(MODEL)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", not endpoint)
    assert weights.fetch_texts(MODEL) == newest
    with pytest.raises(FilesMissing, match=message):
        fetched()
    with pytest.raises(FilesMissing, match=message):
        async with deploy(model_config, ServiceOptions(), log=tmp_path / "log"):
            pass
    assert not (tmp_path / "log").exists()
