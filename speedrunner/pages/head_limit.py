"""uvicorn's protocol for TCP ports, to which other users of the machine can send headers without a key."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds in which the head of a request must be complete. Then its connection is dropped."""

HEAD_BYTES = 16_384
"""Most bytes of an incomplete head. uvicorn's faster parser, `httptools`, has no limit."""


class HeadLimit(H11Protocol):
    """Reads requests with h11, and drops connections whose next request does not arrive."""

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        config.h11_max_incomplete_event_size = HEAD_BYTES
        super().__init__(config, *args, **kwargs)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the first request its time."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # it is being answered
            self._deadline.cancel()
        elif self._deadline.cancelled():
            self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)
