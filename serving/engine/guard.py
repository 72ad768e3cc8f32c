"""Run a command so that neither it nor any process it starts outlives its owner.

    python -P guard.py OWNER_PID FOLDER COMMAND...

A server is a tree of processes, and vLLM's engine does not notice when the API server above it is killed. So
this small process runs between owner and server. It adopts the orphans of the tree (it is their "subreaper",
whatever session they moved to). It ends all of them, then removes FOLDER, in these cases:

- The command has ended by itself. Its status is passed on.
- The owner sends SIGINT. The command gets it too, and the other processes end after it.
- This process gets SIGQUIT. Everything ends at once.
- The owner has ended, in whatever way. This acts like SIGINT, and like SIGQUIT after `ORPHAN_GRACE_S`.

Signals from others are not meant for a server. Slurm signals each process of a job. The owner gets that
signal too, and still needs its engine until its episodes have ended.

This script imports no other module of the project, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil

ORPHAN_GRACE_S = 3.0
POLL_S = 0.5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
OF_A_JOB = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
WATCHED = {signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD}


def run(owner: int, command: list[str]) -> int:
    """Run the command to its end (see the module's docstring). Returns its status as a shell would."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, WATCHED | OF_A_JOB)

    def before_exec() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, OF_A_JOB)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore it otherwise
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=before_exec)
    deadline = None
    while (status := _reap(process.pid)) is None:
        info = signal.sigtimedwait(WATCHED, POLL_S)
        received = info.si_signo if info else None
        asked = info is not None and received == signal.SIGINT and info.si_pid == owner
        orphaned = os.getppid() != owner
        if received == signal.SIGQUIT or (deadline and time.monotonic() > deadline):
            status = 128 + signal.SIGKILL
            break
        if asked or (orphaned and not deadline):
            os.kill(process.pid, signal.SIGINT)
        if orphaned and not deadline:
            deadline = time.monotonic() + ORPHAN_GRACE_S
    process.returncode = status
    _end_descendants()
    return status


def _reap(awaited: int) -> int | None:
    """Collect every ended child; return the status of the awaited one once it has ended."""
    status = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == awaited:
                code = os.waitstatus_to_exitcode(ended[1])
                status = 128 - code if code < 0 else code
    except ChildProcessError:
        pass
    return status


def _end_descendants() -> None:
    """Kill all descendants, repeatedly, since a process may start another one during the search."""
    me = psutil.Process()
    while left := me.children(recursive=True):
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.02)
        _reap(0)


if __name__ == "__main__":
    folder = sys.argv[2]
    try:
        exit_status = run(int(sys.argv[1]), sys.argv[3:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(exit_status)
