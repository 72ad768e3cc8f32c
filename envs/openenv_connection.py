"""A connection to an OpenEnv server, used without an event loop of the caller."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp

from envs.text_env import EnvironmentFault

CLOSE_S = 5.0
"""Seconds that a connection may take to close."""

FAREWELL_S = 1.0
"""Seconds of them that a server may take to answer the end of the connection."""

LARGEST_MESSAGE = 16 * 2**20
"""Bytes of the largest answer."""

T = TypeVar("T")


class NoServer(EnvironmentFault):
    """No OpenEnv server answers at the given address."""


class OpenEnvFailed(RuntimeError):
    """An OpenEnv server refused a request, answered nonsense, did not answer in time, or ended."""


class Connection:
    """A WebSocket to a server's environment.

    A thread with its own event loop reads all the time, and so answers the server's pings while the agent
    thinks. Otherwise, most servers end the connection after 40 seconds.

    Args:
        url: the server's address.
        timeout_s: seconds that connecting and each answer may take.
        token: what the server wants as bearer token, if anything.

    Attributes:
        is_broken: whether the connection failed, so that its environment is lost.

    Raises:
        NoServer: no server answers there.
    """

    def __init__(self, url: str, timeout_s: float, token: str | None = None) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.is_broken = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="openenv", daemon=True)
        self._thread.start()
        self._session: aiohttp.ClientSession | None = None
        self._reader: asyncio.Task[None] | None = None
        self._answers = asyncio.Queue[aiohttp.WSMessage](maxsize=1)
        try:
            self._socket = self._wait(self._connect())
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            self.close()
            reason = str(error) or f"no answer within {timeout_s:g} s"
            raise NoServer(f"no OpenEnv server at {url} ({reason}); start one, or correct env.url") from None

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of its answer. Raises `OpenEnvFailed`."""
        try:
            answer, is_early = self._wait(self._exchange(json.dumps(message)))
            found = json.loads(answer)
            kind, data = found["type"], found["data"]
            if not isinstance(data, dict):
                raise TypeError("data is no object")
        except TimeoutError:
            raise self._broken(f"did not answer {message['type']} within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(f"ended the connection ({error})") from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._broken(f"sent an invalid answer ({type(error).__name__}: {error})") from None
        if kind == "error":
            raise self._broken(f"refused {message['type']}: {str(data.get('message', data))[:300]}")
        if is_early:
            raise self._broken("sent a message without a request")
        return data

    def close(self) -> None:
        """Close the connection and end its thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        self._session = aiohttp.ClientSession()
        socket = await self._session.ws_connect(
            f"{self._url}/ws",
            headers=self._headers,
            max_msg_size=LARGEST_MESSAGE,
            timeout=aiohttp.ClientWSTimeout(ws_close=FAREWELL_S),
        )
        self._reader = asyncio.create_task(self._read(socket))
        return socket

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Queue the server's messages until its last one, which is no text."""
        while not self.is_broken:
            message = await socket.receive()
            self.is_broken = message.type is not aiohttp.WSMsgType.TEXT
            await self._answers.put(message)

    async def _exchange(self, message: str) -> tuple[str, bool]:
        """Return the answer to a message, and whether it was there before the message was sent."""
        is_early = not self._answers.empty()
        try:
            await self._socket.send_str(message)
        except ConnectionError:
            if self._answers.empty():  # otherwise, the server said why
                raise
        answer = await self._answers.get()
        if answer.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError(f"received {answer.type.name}")
        return str(answer.data), is_early

    async def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
            if not self.is_broken:
                await self._socket.send_str('{"type": "close"}')
            await self._socket.close()
        if self._session is not None:
            await self._session.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread's loop. Raises `TimeoutError` when the time is over."""

        async def limited() -> T:
            async with asyncio.timeout(self._timeout_s):
                return await work

        return asyncio.run_coroutine_threadsafe(limited(), self._loop).result()

    def _broken(self, what: str) -> OpenEnvFailed:
        self.is_broken = True
        return OpenEnvFailed(f"the OpenEnv server {self._url} {what}")
