"""A small hub: a real HTTP server that answers what `huggingface_hub` asks when it fetches a model."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from serving.model_config import ModelConfig
from serving.model_configs import MODELS, load_model_config

MODEL = "acme/tiny"
COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"

BUNDLED = {file.name: file.read_bytes() for file in (MODELS / "tiny" / "weights").iterdir()}
WEIGHTS = {"model.safetensors": BUNDLED["model.safetensors"]}
TEXTS = {name: content for name, content in BUNDLED.items() if name.endswith((".json", ".jinja"))}
"""The bundled model, which can be served."""


class HubServer:
    """Serves the files of `MODEL` at `COMMIT`, on loopback.

    Args:
        files: contents by path.
        refusal: the code and status with which files are refused, such as `("GatedRepo", 403)`.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        refusal: tuple[str, int] | None = None,
    ) -> None:
        self.fetched: list[str] = []
        hub = self

        class Answer(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if path == "/":
                    self.say(b"", {})
                elif path == f"/api/models/{MODEL}/tree/{COMMIT}":
                    self.say(json.dumps([self.entry(name) for name in files]).encode(), {})
                elif path == f"/api/models/{MODEL}/revision/main":
                    self.say(json.dumps({"id": MODEL, "sha": COMMIT}).encode(), {})
                elif path.startswith(f"/api/models/{MODEL}/"):
                    self.say(b"{}", {"X-Error-Code": "RevisionNotFound"}, 404)
                elif path.startswith(f"/{MODEL}/resolve/{COMMIT}/"):
                    self.give(path.removeprefix(f"/{MODEL}/resolve/{COMMIT}/"))
                else:
                    self.say(b"{}", {"X-Error-Code": "RepoNotFound"}, 404)

            def entry(self, name: str) -> dict[str, object]:
                content = files[name]
                return {"type": "file", "path": name, "size": len(content), "oid": digest(content)}

            def give(self, name: str) -> None:
                if refusal is not None:
                    self.say(b"{}", {"X-Error-Code": refusal[0]}, refusal[1])
                    return
                if self.command == "GET":
                    hub.fetched.append(name)
                headers = {"ETag": f'"{digest(files[name])}"', "X-Repo-Commit": COMMIT}
                self.say(files[name], headers)

            def say(self, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


ServeHub = Callable[..., HubServer]
"""Starts a hub with these files; see `HubServer`."""


def digest(content: bytes) -> str:
    """Of a file, as git has it: of a length that says it is no LFS file's."""
    return hashlib.sha1(content).hexdigest()


def hub_model_config(folder: Path) -> ModelConfig:
    """The model config of the bundled model, as one of the hub; the file is `model.yaml` in the
    folder.
    """
    text = (MODELS / "tiny.yaml").read_text(encoding="utf-8")
    text = text.replace("path: models/tiny/weights", f"id: {MODEL}\nrevision: {COMMIT}")
    file = folder / "model.yaml"
    file.write_text(text.replace("    HF_HUB_OFFLINE: 1\n", ""), encoding="utf-8")
    return load_model_config(str(file))
