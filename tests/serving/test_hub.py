"""Files of a hub: fetched from a real HTTP server that answers as the hub does, found without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from serving import hub
from serving.engine.server import VllmServer
from serving.errors import InvalidModelConfig
from serving.hub import FilesMissing, NotFetched
from tests.hub_server import COMMIT, MODEL, TEXTS, WEIGHTS, HubServer, hub_model_config

INDEX = b'{"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}'
SHARDS = {
    hub.INDEX: INDEX,
    "model-00001.safetensors": b"one",
    "model-00002.safetensors": b"two",
}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub answers."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Starts hubs."""
    started: list[HubServer] = []

    def serve(files: dict[str, bytes], **options: object) -> HubServer:
        server = HubServer(files, **options).__enter__()  # type: ignore[arg-type]
        started.append(server)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        return server

    yield serve
    for server in started:
        server.__exit__(None, None, None)


def fetched(model: str = MODEL, commit: str = COMMIT) -> Path:
    return hub.fetch(model, commit, lambda line: None)


def refused(model: str = MODEL, commit: str = COMMIT) -> str:
    with pytest.raises(NotFetched) as caught:
        fetched(model, commit)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_serving_takes_is_fetched_and_nothing_else(serve: type[HubServer]) -> None:
    others = {
        "pytorch_model.bin": b"the same",
        "original/consolidated.safetensors": b"again",
        "README.md": b"",
    }
    server = serve({**TEXTS, **WEIGHTS, **others})
    said: list[str] = []
    folder = hub.fetch(MODEL, COMMIT, said.append)
    assert sorted(server.fetched) == sorted({**TEXTS, **WEIGHTS})
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]
    assert hub.size_bytes(folder) == sum(map(len, {**TEXTS, **WEIGHTS}.values()))
    assert said[0].startswith(f"fetching {MODEL}, ")
    assert said[0].endswith(f" GB, into {hub.cache_folder()}")


def test_older_weights_are_fetched_where_there_are_no_others(serve: type[HubServer]) -> None:
    server = serve({**TEXTS, "pytorch_model.bin": b"weights"})
    assert (fetched() / "pytorch_model.bin").read_bytes() == b"weights"
    assert "pytorch_model.bin" in server.fetched


def test_what_is_there_is_asked_of_nobody(serve: type[HubServer], monkeypatch: pytest.MonkeyPatch) -> None:
    serve({**TEXTS, **SHARDS})
    folder = fetched()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetched() == hub.complete_folder(MODEL, COMMIT) == folder


def test_what_is_lost_is_named_and_fetched_again(serve: type[HubServer]) -> None:
    server = serve({**TEXTS, **SHARDS})
    folder = fetched()
    for name in ("model-00002.safetensors", "tokenizer_config.json"):
        (folder / name).resolve().unlink()
        (folder / name).unlink()
    with pytest.raises(FilesMissing, match=r"lacks tokenizer_config\.json, model-00002\.safetensors$"):
        hub.complete_folder(MODEL, COMMIT)
    assert hub.found(MODEL, COMMIT) is None
    server.fetched.clear()
    assert fetched() == folder
    assert sorted(server.fetched) == ["model-00002.safetensors", "tokenizer_config.json"]


def test_the_engine_is_kept_from_asking_for_what_is_there(serve: type[HubServer], tmp_path: Path) -> None:
    model_config = hub_model_config(tmp_path)
    line = VllmServer(model_config, MODEL, tmp_path / "log").shell_line
    assert "HF_HUB_OFFLINE" not in line
    serve({**TEXTS, **WEIGHTS})
    fetched()
    assert " HF_HUB_OFFLINE=1 " in VllmServer(model_config, MODEL, tmp_path / "log").shell_line


class TestRefusals:
    """One line each, with what to do."""

    def test_a_commit_that_does_not_exist(self, serve: type[HubServer]) -> None:
        serve({**TEXTS, **WEIGHTS})
        assert (
            refused(commit="f" * 40)
            == f"{MODEL} has no commit {'f' * 40}: correct the model config's `revision`"
        )

    def test_a_model_that_does_not_exist(self, serve: type[HubServer]) -> None:
        server = serve({**TEXTS, **WEIGHTS})
        assert refused("acme/other").startswith(
            f"{server.url}/acme/other does not exist, or only its owners can read it"
        )

    def test_a_licence_that_was_not_accepted(self, serve: type[HubServer]) -> None:
        server = serve({**TEXTS, **WEIGHTS}, refusal=("GatedRepo", 403))
        assert f"do so at {server.url}/{MODEL}, then `hf auth login`" in refused()

    def test_too_little_room(self, serve: type[HubServer]) -> None:
        server = serve({**TEXTS, **WEIGHTS}, sizes={"model.safetensors": 10**16})
        assert "takes 1e+07 GB" in refused()
        assert "export HF_HOME=" in refused()
        assert server.fetched == []

    def test_what_is_no_model(self, serve: type[HubServer]) -> None:
        serve({"config.json": b"{}"})
        assert "is no model that can be served: " in refused()
        assert "lacks tokenizer_config.json, tokenizer.json or vocab.json or" in refused()

    @pytest.mark.usefixtures("nobody")
    def test_no_network(self) -> None:
        with pytest.raises(InvalidModelConfig, match=r"http://127\.0\.0\.1:9 cannot be reached"):
            fetched()


class TestConfigFile:
    def test_it_is_fetched_alone_and_once(self, serve: type[HubServer]) -> None:
        server = serve(TEXTS)
        for _ in range(2):
            file = hub.config_file(MODEL, COMMIT)
            assert file is not None
            assert file.read_bytes() == TEXTS["config.json"]
        assert server.fetched == ["config.json"]

    @pytest.mark.usefixtures("nobody")
    def test_without_a_hub_there_is_none(self) -> None:
        assert hub.config_file(MODEL, COMMIT) is None

    def test_a_model_that_the_hub_refuses_has_none(self, serve: type[HubServer]) -> None:
        serve(TEXTS, refusal=("GatedRepo", 403))
        assert hub.config_file(MODEL, COMMIT) is None
