"""A host: the process that owns one environment and plays its episodes, one tool call at a time.

It runs primitives, counts actions, records call trees and keeps time limits; skills run in a sandboxed child
(`speedrunner.sandbox`), one for each episode. It is started and spoken to by `speedrunner.hosts.host`, over
one socket whose number is its first argument.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
from contextlib import suppress

from envs import make
from speedrunner.hosts.hosted_episode import HostedEpisode, fault
from speedrunner.hosts.messages import (
    Execute,
    Finish,
    Ready,
    Reply,
    Request,
    Reset,
    Start,
    pack_reply,
    read_request,
)
from speedrunner.sandbox.child_pool import ChildPool


class HostSocket:
    """The host's end of the socket."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._stream = self._socket.makefile("rb")

    def receive(self) -> Request | None:
        """Wait for the next request; `None` when the owner has closed the socket or is gone."""
        return read_request(self._stream)

    def send(self, reply: Reply) -> None:
        """Answer the last request."""
        with suppress(BrokenPipeError):
            self._socket.sendall(pack_reply(reply))


class Server:
    """Answers the owner's requests, one after another."""

    def __init__(self, start: Start) -> None:
        self._pool = ChildPool(start.sandbox)
        self._pool.refill()  # while the environment is made
        self._episode: HostedEpisode | None = None
        try:
            self._env = make(start.env, **start.options)
        except BaseException:
            self._pool.close()
            raise

    def answer(self, request: Reset | Execute | Finish) -> Reply | None:
        """Do what is asked for."""
        match request:
            case Reset():
                self._finish()
                self._episode = HostedEpisode(self._env, self._pool, request)
                return self._episode.opened
            case Execute():
                assert self._episode is not None
                return self._episode.execute(request)
            case Finish():
                self._finish()
                return None

    def prepare(self) -> None:
        """Use the time until the next request."""
        self._pool.refill()

    def close(self) -> None:
        """End all processes and close the environment."""
        self._finish()
        self._pool.close()
        self._env.close()

    def _finish(self) -> None:
        if self._episode is not None:
            self._episode.close()
            self._episode = None


def serve(owner: HostSocket) -> None:
    """Answer requests until the owner closes the socket."""
    start = owner.receive()
    if not isinstance(start, Start):
        return
    try:
        server = Server(start)
    except Exception as error:
        owner.send(fault(error, f"the environment {start.env} could not be made"))
        return
    owner.send(Ready())
    try:
        while (request := owner.receive()) is not None:
            assert not isinstance(request, Start)
            try:
                reply = server.answer(request)
            except Exception as error:
                reply = fault(error, _what(request))
            if reply is not None:
                owner.send(reply)
            server.prepare()
    finally:
        server.close()


def _what(request: Reset | Execute | Finish) -> str:
    if isinstance(request, Reset):
        return f"task {request.task.name} {request.task.index} could not be started"
    return "the environment failed"


def _die_with_owner(owner: int) -> None:
    """Have the kernel end this process when its owner ends, in whatever way; the socket tells it too late
    when a call is running."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != owner:
        sys.exit(0)


def main() -> None:
    """Run a host; for the arguments see `speedrunner.hosts.host`."""
    fd, owner = (int(each) for each in sys.argv[1:])
    _die_with_owner(owner)
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach whole groups; the owner decides
        signal.signal(number, signal.SIG_IGN)
    serve(HostSocket(fd))


if __name__ == "__main__":
    main()
