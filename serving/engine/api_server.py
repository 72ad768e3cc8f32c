"""vLLM's API server, deaf to what Slurm sends to every process of a job (`serving.engine.guard` says why)."""

from __future__ import annotations

import runpy
import signal
import sys
from multiprocessing import resource_tracker

from serving.engine.guard import OF_A_JOB

API_SERVER = (sys.executable, "-P", "-m", "serving.engine.api_server")
"""The API server's module: the `vllm` command does not work with the CPU package, and hears too much."""

MODULE = "vllm.entrypoints.openai.api_server"


def be_deaf() -> None:
    """Block those signals, here and in the processes that are started from now on.

    Python's own resource tracker would unblock SIGTERM when the first of them needs one, so it is started
    before.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_JOB)


if __name__ == "__main__":
    be_deaf()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
