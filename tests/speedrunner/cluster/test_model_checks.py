"""Files of models, and the installed engine."""

from __future__ import annotations

import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from serving.model_configs import CHECKOUT
from speedrunner.cluster import model_checks
from speedrunner.cluster.cluster_subject import subject_of
from speedrunner.cluster.model_checks import files, servers
from speedrunner.plain.findings import Finding
from tests.golden_tables import Golden, table
from tests.hub_server import BUNDLED, COMMIT, MODEL, hub_model_config


def the(check: object, *given: str) -> Finding:
    (found,) = check(subject_of(given))  # type: ignore[operator]
    assert isinstance(found, Finding)
    return found


class OneModel(BaseHTTPRequestHandler):
    """Says that it serves `tiny`."""

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class TestServers:
    """That runs elsewhere; a stand-in answers here."""

    def test_nothing_answers(self) -> None:
        found = the(servers, "model=tiny", "serving.url=http://127.0.0.1:1")
        assert (found.name, found.level) == ("server of tiny", "failed")
        assert found.text.startswith("nothing answers at http://127.0.0.1:1/v1 (")
        assert "correct serving.url" in found.remedy

    def test_it_serves_the_model_or_another(self) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), OneModel) as server:
            threading.Thread(target=server.serve_forever).start()
            try:
                url = f"http://127.0.0.1:{server.server_port}/v1"
                found = the(servers, "model=tiny", f"serving.url={url}")
                other = the(servers, "model=tiny-random", f"serving.url={url}")
            finally:
                server.shutdown()
        assert (found.level, found.text) == ("ok", f"{url} serves it with a context of 16,384 tokens")
        assert other.level == "failed"
        assert other.text == f"the server at {url} serves tiny, not 'tiny-random'"


def lines_of(check: object, *given: str) -> str:
    return "\n".join(the(check, *given).lines())


class TestFiles:
    """Of every model that a role has."""

    def test_what_is_there_or_missing_is_named_with_the_remedy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        tiny = (CHECKOUT / "models/tiny.yaml").read_text()
        found = {"a bundled model": lines_of(files, "model=tiny")}
        with monkeypatch.context() as patch:
            patch.setattr(model_checks, "model_path", lambda model_config: tmp_path / "none")
            found["a recipe that was never followed"] = lines_of(files)

        for name, weights in (("missing", "/nowhere"), ("bare", str(tmp_path / "weights"))):
            (tmp_path / f"{name}.yaml").write_text(tiny.replace("models/tiny/weights", weights))
        found["a folder that is missing"] = lines_of(files, f"model.name={tmp_path}/missing.yaml")
        shutil.copytree(CHECKOUT / "models/tiny/weights", tmp_path / "weights")
        (tmp_path / "weights/tokenizer.json").unlink()
        found["a folder without a tokenizer"] = lines_of(files, f"model.name={tmp_path}/bare.yaml")

        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        found["a hub model that was never fetched"] = lines_of(files, "model=qwen3-8b")
        hub_model_config(tmp_path)
        folder = tmp_path / f"models--{MODEL.replace('/', '--')}" / "snapshots" / COMMIT
        folder.mkdir(parents=True)
        for name, content in BUNDLED.items():
            (folder / name).write_bytes(content)
        given = f"model.name={tmp_path / 'model.yaml'}"
        found["a hub model"] = lines_of(files, given)
        (folder / "model.safetensors").unlink()
        found["a hub model without its weights"] = lines_of(files, given)

        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        found["a hosted model without its key"] = lines_of(files, "model=gpt-5.4-mini")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        found["a hosted model with its key"] = lines_of(files, "model=gpt-5.4-mini")
        text = table(found, HERE=tmp_path, CHECKOUT=CHECKOUT, COMMIT=COMMIT)
        golden("doctor/model_files.txt", re.sub(r"[\d.]+ GB", "N GB", text))
