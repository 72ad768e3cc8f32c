"""The worker's end of a child's pipes: it waits for a stated time only, and takes nothing on trust."""

from __future__ import annotations

import os
import secrets
import select
import time
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec

from speedrunner.sandbox.child.bounds import MESSAGE_LIMIT, excess
from speedrunner.sandbox.child.wire import HEADER, framed

CHUNK = 65_536
"""Bytes that are read at once."""

POLL_S = 3_600.0
"""Seconds of one wait; what `poll` takes has an end."""


class ChannelError(Exception):
    """The child cannot be talked to any more."""


class ChannelTimeout(ChannelError):
    """The child did not say, or take, a whole message in time."""


class ChannelClosed(ChannelError):
    """The child's process has ended, or has closed its pipes."""


class InvalidMessage(ChannelError):
    """The child said something that it must not say at this point."""


STOP_S = 0.5
"""Seconds after its time limit in which work can stop by itself, before its process is killed: a code session
keeps its variables then, a module what it remembers."""

REASON_CHARS = 200
"""Characters of the reason why a message is refused."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Said(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Something about one piece of work, which only those who were given it can number."""

    number: int


Something = TypeVar("Something", bound=Said)


def new_number() -> int:
    """A number for a piece of work that nobody guesses."""
    return secrets.randbits(50)


class Channel:
    """Length-prefixed messages over two pipes.

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

    def send(self, message: object, deadline: float) -> None:
        """Write one message, by the monotonic clock's `deadline`. Raises `ChannelError`."""
        rest = memoryview(framed(msgspec.json.encode(message)))
        while rest:
            try:
                rest = rest[os.write(self._writing, rest) :]
            except BlockingIOError:
                self._wait(self._writable, deadline)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def receive(self, decoder: msgspec.json.Decoder[Any], deadline: float) -> Any:
        """Wait for one message until the monotonic clock's `deadline`. Raises `ChannelError`."""
        if time.monotonic() > deadline:
            raise ChannelTimeout
        self._fill(HEADER.size, deadline)
        (size,) = HEADER.unpack_from(self._buffer)
        if size > MESSAGE_LIMIT:
            raise InvalidMessage(f"a message of {size} bytes; {MESSAGE_LIMIT} are allowed")
        end = HEADER.size + size
        self._fill(end, deadline)
        body = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        if problem := excess(body):
            raise InvalidMessage(f"a message of {problem}")
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:REASON_CHARS]  # it may quote the message
            raise InvalidMessage(f"a message that is none ({reason})") from error

    def receive_about(
        self, number: int, decoder: msgspec.json.Decoder[Something], deadline: float
    ) -> Something:
        """Wait for the next word about the piece of work of this number. Raises `ChannelError`."""
        said: Something = self.receive(decoder, deadline)
        if said.number != number:
            raise InvalidMessage("a message about what it had not been given to run")
        return said

    def check_quiet(self) -> None:
        """Raise `InvalidMessage` or `ChannelClosed` where something has arrived that was not asked for."""
        with suppress(ChannelTimeout):
            self._fill(1, 0.0)
            raise InvalidMessage("a message although it had been given nothing to run")

    def drain(self, deadline: float) -> None:
        """Throw away what arrives, until the child has closed its end or time is up."""
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
