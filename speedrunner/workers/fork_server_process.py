"""The fork server's process: it loads an environment and is forked for each worker; see
`speedrunner.workers.fork_server`.

A worker runs primitives, counts actions, records call trees and enforces time limits. Skills run in a
sandboxed child (`speedrunner.workers.sandbox`), one for each episode.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from envs import EnvironmentFault, make
from envs.env_registry import REGISTRY
from speedrunner.workers.local_worker import LocalWorker
from speedrunner.workers.sandbox.child.rlimits import die_with
from speedrunner.workers.worker_episode import fault
from speedrunner.workers.worker_messages import (
    PID,
    Finish,
    Ready,
    Reply,
    Start,
    encode_reply,
    frame,
    read_request,
)

NOTHING_LOADED = "nothing-loaded"
"""Last argument of a process that must not load the environment."""

CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}
"""Number of the system call, by machine."""


def serve(owner: socket.socket) -> None:
    """Serve as a worker: answer requests until the owner closes the socket."""
    requests = owner.makefile("rb")

    def send(reply: Reply) -> None:
        with suppress(BrokenPipeError):  # the owner may be gone
            owner.sendall(frame(encode_reply(reply)))

    first = read_request(requests)
    if not isinstance(first, Start):
        return
    try:
        env = make(first.env, **first.options)
        env.warm_up()
    except Exception as error:
        send(fault(error, f"a worker of {first.env} could not start"))
        return
    worker = LocalWorker(env, first.sandbox)
    send(Ready())
    try:
        while (request := read_request(requests)) is not None:
            assert not isinstance(request, Start)
            reply = worker.answer(request)
            if not isinstance(request, Finish):
                send(reply)
            worker.prepare()
    finally:
        worker.end()


def main() -> None:
    """Load the environment, then fork a worker for each socket that the owner sends."""
    env, fd, owner = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    die_with(owner)
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are sent to whole groups; the owner decides
        signal.signal(number, signal.SIG_IGN)
    if sys.argv[-1] != NOTHING_LOADED:
        _preload(env)
    control = _socket(fd)
    gc.collect()
    gc.freeze()  # keeps shared memory shared: the workers' garbage collection does not touch it
    control.send(PID.pack(0))
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not fds:
            return
        pid = _fork_sibling()
        if not pid:
            _run_worker(fds[0], owner, control)
        os.close(fds[0])
        control.send(PID.pack(pid))


def _preload(env: str) -> None:
    """Load what workers can share. Threads cannot be forked: if an environment starts some, restart this
    process with nothing loaded."""
    try:
        REGISTRY.find(env).preload()
    except Exception as error:  # each worker will raise it again and report it
        if not isinstance(error, EnvironmentFault):
            traceback.print_exc()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        os.execv(sys.executable, [*sys.orig_argv, NOTHING_LOADED])


def _run_worker(fd: int, owner: int, control: socket.socket) -> None:
    """Serve as a worker until the end of this process."""
    status = 1
    try:
        os.setsid()  # so that its whole group can be killed
        die_with(owner)  # the socket closes too late if a call is running
        control.close()
        serve(_socket(fd))
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # skips exit handlers, which belong to the fork server


def _socket(fd: int) -> socket.socket:
    """Return the socket of a file descriptor, which child processes do not inherit."""
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def _fork_sibling() -> int:
    """Fork a process with the same parent as this one. Returns its id, 0 in the new process, or a negative
    errno.

    This is `os.fork` with one more flag: the system call, between Python's own work before and after any
    fork. There is only one thread, so no lock of the C library is held.
    """
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_libc.syscall(CLONE[os.uname().machine], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid if pid > 0 else -ctypes.get_errno()


_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the interpreter's lock


if __name__ == "__main__":
    main()
