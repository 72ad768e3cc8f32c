"""The worker's end of a child's pipes. Every wait has a limit, and every message is validated."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from speedrunner.workers.sandbox.child.values import MESSAGE_LIMIT, excess
from speedrunner.workers.sandbox.child.wire import HEADER, frame_body

CHUNK = 65_536
"""Bytes that are read at once."""

POLL_S = 3_600.0
"""Seconds of one wait; `poll` has a maximum."""


class ChannelError(Exception):
    """The child can no longer be reached."""


class ChannelTimeout(ChannelError):
    """The child did not send, or accept, a whole message in time."""


class ChannelClosed(ChannelError):
    """The child's process has ended, or has closed its pipes."""


class InvalidMessage(ChannelError):
    """The child sent something that it must not send at this point."""


STOP_S = 0.5
"""Seconds after its time limit in which work can stop by itself before its process is killed. If it stops, a
code session keeps its variables, and a module its state."""

REASON_CHARS = 200
"""Characters of the reason why a message is rejected."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Said(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A message of a child."""


class Channel:
    """Length-prefixed messages over two pipes. Each carries the number of the piece of work that it is about:
    what the child says late about an earlier piece does not answer a later one.

    Args:
        reading: file descriptor of the pipe that the child writes to.
        writing: file descriptor of the pipe that it reads from.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(reading, select.POLLIN)
        self._writable.register(writing, select.POLLOUT)
        self._buffer = bytearray()
        self._piece = 0

    def give(self, work: object, deadline: float) -> None:
        """Write the message that begins a piece of work, by the `deadline` of the monotonic clock. Raises
        `ChannelError`."""
        self._piece += 1
        self.send(work, deadline)

    def send(self, message: object, deadline: float) -> None:
        """Write one message about the current piece, by the `deadline`. Raises `ChannelError`."""
        rest = memoryview(frame_body(msgspec.json.encode(message), self._piece))
        while rest:
            try:
                rest = rest[os.write(self._writing, rest) :]
            except BlockingIOError:
                self._wait(self._writable, deadline)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def receive(self, decoder: msgspec.json.Decoder[Any], deadline: float) -> Any:
        """Wait for one message about the current piece until the `deadline`. Raises `ChannelError`."""
        if time.monotonic() > deadline:
            raise ChannelTimeout
        self._fill(HEADER.size, deadline)
        size, piece = HEADER.unpack_from(self._buffer)
        if size > MESSAGE_LIMIT:
            raise InvalidMessage(f"a message of {size} bytes; {MESSAGE_LIMIT} are allowed")
        end = HEADER.size + size
        self._fill(end, deadline)
        body = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        if piece != self._piece:
            raise InvalidMessage("a message about what it had not been given to run")
        if problem := excess(body):
            raise InvalidMessage(f"a message of {problem}")
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:REASON_CHARS]  # it may quote the message
            raise InvalidMessage(f"a message that is none ({reason})") from error

    def check_quiet(self) -> None:
        """Raise `InvalidMessage` or `ChannelClosed` if the child sent something unasked."""
        with suppress(ChannelTimeout):
            self._fill(1, 0.0)
            raise InvalidMessage("a message although it had been given nothing to run")

    def drain(self, deadline: float) -> None:
        """Discard everything that arrives, until the child closes its end or time is up."""
        try:
            while True:
                self._buffer.clear()
                self._fill(1, deadline)
        except ChannelError:
            return

    def _fill(self, size: int, deadline: float) -> None:
        """Read until the buffer has `size` bytes."""
        while len(self._buffer) < size:
            try:
                part = os.read(self._reading, CHUNK)
            except BlockingIOError:
                self._wait(self._readable, deadline)
                continue
            if not part:
                raise ChannelClosed("it has closed its pipe")
            self._buffer += part

    def _wait(self, poll: select.poll, deadline: float) -> None:
        while (left_s := deadline - time.monotonic()) > 0:
            if poll.poll(min(left_s, POLL_S) * 1_000 + 1):
                return
        raise ChannelTimeout
