"""vLLM's API server, deaf to what Slurm sends to every process of a job (`serving.engine.guard` says why)."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from multiprocessing import resource_tracker
from typing import Any

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


def fork_cpu_engine() -> None:
    """Let a server on the CPU fork its engine, as vLLM does on GPUs, if it computes on one thread.

    On CPUs vLLM starts the engine as a new Python process, because a fork loses OpenMP's threads. With one
    thread there are none to lose. A forked engine has all modules, whose import is most of the work of a
    start.
    """
    if os.environ.get("OMP_NUM_THREADS") != "1":
        return
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    platform: Any = type(current_platform)
    check = platform.check_and_update_config

    def check_and_fork(config: Any) -> None:
        check(config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = staticmethod(check_and_fork)


if __name__ == "__main__":
    be_deaf()
    fork_cpu_engine()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
