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

from envs import EnvironmentFault, TextEnv, make
from envs.env_registry import REGISTRY
from speedrunner.workers.sandbox.child.confinement import die_with
from speedrunner.workers.sandbox.child_process import ChildPool
from speedrunner.workers.sandbox.isolation import SandboxError, show_python
from speedrunner.workers.worker_episode import EnvironmentBroke, WorkerEpisode, fault
from speedrunner.workers.worker_messages import (
    PID,
    Execute,
    Finish,
    Load,
    Ready,
    Reply,
    Reset,
    Start,
    pack,
    read_request,
)

CLONE_PARENT = 0x8000
CLONE = 56
"""Number of the system call on x86-64."""


class Server:
    """Plays the episodes of one environment. If the environment hangs or dies, so does this process.

    Args:
        env: the environment.
        pool: starts processes for skills, if there are skills.
    """

    def __init__(self, env: TextEnv, pool: ChildPool) -> None:
        self._env = env
        self._pool = pool
        self._episode: WorkerEpisode | None = None

    def answer(self, request: Reset | Load | Execute | Finish) -> Reply:
        """Execute a request; an error in it becomes a `Fault`."""
        try:
            match request:
                case Reset():
                    self.finish()
                    self._episode = WorkerEpisode(self._env, self._pool, request)
                    return self._episode.opened
                case Load():
                    assert self._episode is not None
                    self._episode.load(request.module)
                case Execute():
                    assert self._episode is not None
                    return self._episode.execute(request)
                case Finish():
                    self.finish()
            return Ready()
        except EnvironmentBroke as broke:
            return fault(broke.__cause__ or broke, f"{broke} failed")
        except Exception as error:
            what = "the environment failed"
            if isinstance(request, Reset):
                what = f"task {request.task.name} {request.task.index} could not be started"
            elif isinstance(error, SandboxError):
                what = "skills cannot be run"
            return fault(error, what)

    def finish(self) -> None:
        """Clean up after the episode."""
        if self._episode is not None:
            self._episode.close()
            self._episode = None


def serve(owner: socket.socket) -> None:
    """Serve as a worker: answer requests until the owner closes the socket."""
    requests = owner.makefile("rb")

    def send(reply: Reply) -> None:
        with suppress(BrokenPipeError):  # the owner may be gone
            owner.sendall(pack(reply))

    first = read_request(requests)
    if not isinstance(first, Start):
        return
    try:
        env = make(first.env, **first.options)
        env.warm_up()
    except Exception as error:
        send(fault(error, f"a worker of {first.env} could not start"))
        return
    pool = ChildPool(first.sandbox)
    worker = Server(env, pool)
    send(Ready())
    try:
        while (request := read_request(requests)) is not None:
            assert not isinstance(request, Start)
            reply = worker.answer(request)
            if not isinstance(request, Finish):
                send(reply)
    finally:
        worker.finish()
        pool.close()
        env.close()


def main() -> None:
    """Load the environment, then fork a worker for each socket that the owner sends."""
    env, fd, owner = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    die_with(owner)
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are sent to whole groups; the owner decides
        signal.signal(number, signal.SIG_IGN)
    try:
        REGISTRY.find(env).preload()
    except Exception as error:  # each worker will raise it again and report it
        if not isinstance(error, EnvironmentFault):
            traceback.print_exc()
    with suppress(SandboxError):  # each child of a worker will report it
        show_python()  # once for all workers
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
    pid = int(_libc.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid if pid > 0 else -ctypes.get_errno()


_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the interpreter's lock


if __name__ == "__main__":
    main()
