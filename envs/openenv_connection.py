"""A connection to an OpenEnv server, used without an event loop of the caller."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import State
from websockets.sync.client import connect

from envs.text_env import EnvironmentFault

FAREWELL_S = 1.0
"""Seconds that a server may take to answer the end of the connection."""

LARGEST_MESSAGE = 16 * 2**20
"""Bytes of the largest answer."""


class NoServer(EnvironmentFault):
    """No OpenEnv server answers at the given address."""


class OpenEnvFailed(RuntimeError):
    """An OpenEnv server refused a request, answered nonsense, did not answer in time, or ended."""


class Connection:
    """A WebSocket to a server's environment.

    A thread of the socket reads all the time, and so answers the server's pings while the agent thinks.
    Otherwise, most servers end the connection after 40 seconds. It sends no pings: a server may compute for
    longer than it would wait for their answers.

    Args:
        url: the server's address.
        timeout_s: seconds that connecting and each answer may take.
        token: what the server wants as bearer token, if anything.

    Raises:
        NoServer: no server answers there.
    """

    def __init__(self, url: str, timeout_s: float, token: str | None = None) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._failed = False
        self._open = ExitStack()
        try:
            opening = connect(
                f"{re.sub('^http', 'ws', url)}/ws",
                additional_headers=None if token is None else {"Authorization": f"Bearer {token}"},
                open_timeout=timeout_s,
                close_timeout=FAREWELL_S,
                ping_interval=None,
                max_size=LARGEST_MESSAGE,
                compression=None,
                proxy=None,
            )
            self._socket = self._open.enter_context(opening)
        except (WebSocketException, OSError, ValueError) as error:  # a timeout is an OSError
            reason = str(error) or f"no answer within {timeout_s:g} s"
            raise NoServer(f"no OpenEnv server at {url} ({reason}); start one, or correct env.url") from None

    @property
    def is_broken(self) -> bool:
        """Return whether the connection failed or ended, so that its environment is lost."""
        return self._failed or self._socket.state is not State.OPEN

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of its answer. Raises `OpenEnvFailed`."""
        try:
            answer, is_early = self._exchange(json.dumps(message))
            found = json.loads(answer)
            kind, data = found["type"], found["data"]
            if not isinstance(data, dict):
                raise TypeError("data is no object")
        except TimeoutError:
            raise self._broken(f"did not answer {message['type']} within {self._timeout_s:g} s") from None
        except (WebSocketException, OSError) as error:
            raise self._broken(f"ended the connection ({error})") from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._broken(f"sent an invalid answer ({type(error).__name__}: {error})") from None
        if kind == "error":
            raise self._broken(f"refused {message['type']}: {str(data.get('message', data))[:300]}")
        if is_early:
            raise self._broken("sent a message without a request")
        return data

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with suppress(ConnectionClosed, OSError):
            self._socket.send('{"type": "close"}')
        self._open.close()

    def _exchange(self, message: str) -> tuple[str | bytes, bool]:
        """Return the answer to a message; or what the server sent before, and `True`."""
        with suppress(TimeoutError):
            return self._socket.recv(0), True
        with suppress(ConnectionClosed):  # the server may have said why
            self._socket.send(message)
        return self._socket.recv(self._timeout_s), False

    def _broken(self, what: str) -> OpenEnvFailed:
        self._failed = True
        return OpenEnvFailed(f"the OpenEnv server {self._url} {what}")
