"""A part of a model on each other node of a job: waits for a server, and serves with it, again and again.

The job's script starts it in a step of its own, before all else (`speedrunner follow`), so that it outlives
servers. It ends when its standard input does. What it starts goes with it (`serving.engine.guard`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from serving.engine import guard
from serving.engine.caches import cache_settings
from serving.engine.folders import private_folder
from serving.engine.meeting import MEETING, Part, joined, network
from serving.engine.toolkit import server_path
from serving.errors import ServerFailed

HEADLESS = (sys.executable, "-P", "-m", "serving.engine.headless")

NEEDED = (MEETING, "SLURM_PROCID", "SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR")
POLL_S = 1.0


def follow() -> None:
    """Serve with each server that asks for it, until standard input ends.

    Slurm signals each process of a job when it is to stop; only the run's own is to hear of it, since its
    episodes still need the model.

    Raises:
        ServerFailed: this is not a step of such a job.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, guard.OF_A_JOB)
    if missing := [name for name in NEEDED if name not in os.environ]:
        raise ServerFailed(
            f"{' and '.join(missing)} is not set: this command is for the scripts of `speedrunner submit`"
        )
    file, rank, node, head = (os.environ[name] for name in NEEDED)
    while not select.select([sys.stdin], [], [], POLL_S)[0]:  # nothing is ever said there
        if (asked := joined(Path(file), head, int(rank) + 1, node)) is None:
            continue
        lifeline, part = asked
        with lifeline:
            try:
                _serve(part, int(rank) + 1, lifeline)
            except (OSError, ServerFailed) as error:
                print(f"{node} cannot serve its part of the model: {error}", file=sys.stderr, flush=True)


def _serve(part: Part, rank: int, lifeline: socket.socket) -> None:
    """Run the part until it ends by itself, or the connection to the launcher or standard input does."""
    temporary = os.environ.get("SLURM_TMPDIR", "")
    tempfile.tempdir = temporary if Path(temporary).is_dir() else "/tmp"
    folder = private_folder()
    folder.mkdir(mode=0o700)
    environment = {**os.environ, **part.environment}
    own = {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder), "PATH": server_path(environment)}
    # The job's script knows the owner of the scratch folder on the first node alone.
    own |= {"NUMBA_CACHE_DIR": str(folder / "numba"), **cache_settings(environment, folder)}
    guarded = [sys.executable, "-P", guard.__file__, str(os.getpid()), str(folder)]
    process = subprocess.Popen(
        [*guarded, *HEADLESS, *part.arguments, "--headless", "--node-rank", str(rank)],
        stdin=subprocess.DEVNULL,
        stdout=lifeline.fileno(),
        stderr=subprocess.STDOUT,
        env={**environment, **network(lifeline.getsockname()[0], environment), **own},
        start_new_session=True,
    )
    while process.poll() is None:
        if select.select([lifeline, sys.stdin], [], [], POLL_S / 2)[0]:
            process.send_signal(signal.SIGQUIT)
            process.wait()
