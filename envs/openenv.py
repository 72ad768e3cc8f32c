"""Any environment behind an OpenEnv server: text actions and observations over its WebSocket.

Speaks the protocol of openenv-core 0.3.0 (meta-pytorch/OpenEnv): each connection to `/ws` is an environment,
and its messages are `reset`, `step` and `close`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.seeded_game import GameStep, SeededGame
from envs.text_env import InvalidOption

if TYPE_CHECKING:
    from envs.openenv_connection import Connection


class OpenEnv(SeededGame):
    """Plays an OpenEnv server. An error of the server in the middle of an episode is an `OpenEnvFailed`.

    Args:
        url: the server, such as http://localhost:8000.
        action: the field of an action that takes the text.
        observation: the field of an observation with the text; `None`: all fields as JSON.
        instruction: the task, in the opening of each episode.
        timeout_s: seconds that the server may take for an answer.
        token_file: a file with the token that the server wants, if any.

    Raises:
        InvalidOption: `url` is not an http or https address or contains a password, the time is not
            positive, or the file has no token.
    """

    name = "openenv"
    packages = ("websockets",)
    local_options = frozenset({"url", "token_file"})
    memory_mb = 60

    def __init__(
        self,
        *,
        url: str = "http://localhost:8000",
        action: str = "message",
        observation: str | None = None,
        instruction: str = SeededGame.instruction,
        timeout_s: float = 60.0,
        token_file: str | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidOption(f"option 'url' of openenv must be an http or https address, not {url!r}")
        if "@" in url.split("/")[2]:
            raise InvalidOption(
                "option 'url' of openenv must not contain a password, which records and process lists would"
                " show: write it into a file and name that as token_file"
            )
        if not timeout_s > 0:
            raise InvalidOption(f"option 'timeout_s' of openenv must be positive, not {timeout_s:g}")
        self.instruction = instruction
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._action, self._observation = action, observation
        self._token = None if token_file is None else _read_token(token_file)
        self._connection: Connection | None = None

    @classmethod
    def preload(cls) -> None:
        """Load the client in advance."""
        from envs import openenv_connection  # noqa: F401

    def start(self, seed: int) -> GameStep:
        """Reset the server's environment, over a new connection if the last one failed.

        Raises:
            NoServer: no server answers at the address.
            OpenEnvFailed: it refuses, or does not answer in time.
        """
        from envs.openenv_connection import Connection

        if self._connection is not None and self._connection.is_broken:
            self.close()
        if self._connection is None:
            self._connection = Connection(self._url, self._timeout_s, self._token)
        return self._step({"type": "reset", "data": {"seed": seed}})

    def act(self, text: str) -> GameStep:
        """Send a step. Raises `OpenEnvFailed`."""
        return self._step({"type": "step", "data": {self._action: text}})

    def close(self) -> None:
        """Close the connection. The outcome stays readable."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _step(self, message: dict[str, Any]) -> GameStep:
        from envs.openenv_connection import OpenEnvFailed

        if self._connection is None:
            raise OpenEnvFailed(f"the connection to the OpenEnv server {self._url} is closed")
        data = self._connection.ask(message)
        try:
            observation = data["observation"]
            if self._observation is None:
                text = json.dumps(observation, ensure_ascii=False, sort_keys=True)
            else:
                text = str(observation[self._observation])
            return GameStep(text, float(data.get("reward") or 0.0), bool(data.get("done")))
        except (KeyError, TypeError, ValueError) as error:
            fields = ", ".join(data["observation"]) if isinstance(data.get("observation"), dict) else "none"
            raise OpenEnvFailed(
                f"the OpenEnv server {self._url} answered without a usable observation"
                f" ({type(error).__name__}: {error}; its fields: {fields})"
            ) from None


def _read_token(file: str) -> str:
    """Return the token in a file. Raises `InvalidOption`."""
    try:
        token = Path(file).expanduser().read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidOption(f"option 'token_file' of openenv cannot be read: {error}") from None
    if len(token.split()) != 1:
        raise InvalidOption(f"option 'token_file' of openenv must name a file with one word, not {file!r}")
    return token
