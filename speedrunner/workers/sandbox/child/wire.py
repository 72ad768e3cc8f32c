"""The child's end of its two pipes: length-prefixed JSON, one message at a time."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">II")
"""The length of a message in bytes, and the number of the piece of work that it is about. Both precede it."""

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder()


def encode(message: object) -> bytes:
    """Return a message's body.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot express it.
    """
    return _encoder.encode(message).encode()


def frame_body(body: bytes, piece: int) -> bytes:
    """Return a body in its wire format."""
    return HEADER.pack(len(body), piece) + body


class Wire:
    """Takes over standard input and output and replaces them with `/dev/null`."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nowhere, standard)
        os.close(nowhere)
        self._piece = 0

    def send(self, body: bytes) -> None:
        """Write one message."""
        rest = memoryview(frame_body(body, self._piece))
        while rest:
            rest = rest[os.write(self._out, rest) :]

    def receive(self) -> Any:
        """Wait for the next message. The process ends if there will be none."""
        size, self._piece = HEADER.unpack(self._read(HEADER.size))
        return _decoder.decode(self._read(size).decode())

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._in, size)
            if not part:
                os._exit(0)  # the worker has closed the pipe
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
