"""A part of a model that another node serves: kept for as long as a connection to that one stands.

    python -m serving.engine.follower OPTIONS OF THE API SERVER

Started by `serving.engine.nodes` on each other node. What it starts goes with it (`serving.engine.guard`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from serving.engine import guard
from serving.engine.folders import private_folder
from serving.engine.nodes import LIFELINE, meeting

HEADLESS = (sys.executable, "-m", "serving.engine.headless")

CACHES = frozenset(
    {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH"}
)
POLL_S = 0.5


def run(arguments: Sequence[str]) -> int:
    """Serve until the other node's end (status 0), or until this part has ended by itself (any other)."""
    master = arguments[arguments.index("--master-addr") + 1]
    with socket.create_connection((master, int(os.environ[LIFELINE]))) as lifeline:
        return _serve(arguments, master, lifeline)


def _serve(arguments: Sequence[str], master: str, lifeline: socket.socket) -> int:
    temporary = os.environ.get("SLURM_TMPDIR", "")
    tempfile.tempdir = temporary if Path(temporary).is_dir() else "/tmp"
    folder = private_folder()
    folder.mkdir(mode=0o700)
    # Nobody has looked who owns the scratch folders that the first node's caches lie in.
    own = {name: str(folder / name.lower()) for name in CACHES if name in os.environ}
    own |= {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}
    rank = int(os.environ["SLURM_PROCID"]) + 1
    guarded = [sys.executable, "-P", guard.__file__, str(os.getpid()), str(folder)]
    process = subprocess.Popen(
        [*guarded, *HEADLESS, *arguments, "--headless", "--node-rank", str(rank)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **meeting(master), **own},
        start_new_session=True,
    )
    while process.poll() is None:
        broken, _, _ = select.select([lifeline], [], [], POLL_S)  # nothing is ever said
        if broken:
            process.send_signal(signal.SIGQUIT)
            process.wait()
            return 0
    return process.returncode or 1


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, guard.OF_A_JOB)
    sys.exit(run(sys.argv[1:]))
