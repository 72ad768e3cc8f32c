"""vLLM's API server, deaf to what Slurm sends to every process of a job (`serving.engine.guard` says why).

Its signals are blocked, which the processes that it starts inherit. Python's own resource tracker would
unblock SIGTERM when the first of them needs one, so it is started before.
"""

from __future__ import annotations

import runpy
import signal
from multiprocessing import resource_tracker

MODULE = "vllm.entrypoints.openai.api_server"

if __name__ == "__main__":
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
