"""vLLM's API server, deaf to the signals that Slurm sends to every process of a job (reasons in
`serving.engine.guard`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any

from serving.engine.guard import OF_A_JOB
from serving.engine.scheduling import NO_CONVOYS, OWN_MODULE, SCHEDULER_FLAG

API_SERVER = (sys.executable, "-P", "-m", "serving.engine.api_server")
"""The API server's module. The `vllm` command does not work with the CPU package, and does not ignore those
signals."""


def serve() -> None:
    """Serve a model."""
    from vllm.entrypoints.launchers.api_server.entry import main

    sys.argv[:] = with_known_scheduler(sys.argv)
    gc.freeze()  # collect garbage from now on, but do not search the loaded modules for it
    gc.enable()
    main()


def with_known_scheduler(arguments: list[str]) -> list[str]:
    """Return the arguments without our scheduler if this version of vLLM lacks what it imports."""
    if SCHEDULER_FLAG not in arguments or OWN_MODULE not in " ".join(arguments):
        return arguments
    try:
        import_module(OWN_MODULE)
    except (ImportError, AttributeError) as error:
        print(f"{NO_CONVOYS}: {error}", file=sys.stderr)
        place = arguments.index(SCHEDULER_FLAG)
        return arguments[:place] + arguments[place + 2 :]
    return arguments


def fork_cpu_engine() -> None:
    """Let a server on the CPU fork engine and workers, as vLLM does on GPUs, if it computes on one thread.

    On CPUs vLLM starts them as new Python processes, because a fork loses OpenMP's threads. With one thread
    there are none to lose. A forked process has all modules loaded, and importing them is most of the work of
    a start.
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
    gc.disable()  # loading modules leaves no garbage; without searches for it, a start takes a fifth less
    # Block the signals of a job here, and in all processes started from now on. Python's resource tracker
    # unblocks SIGTERM when a process first needs it, so it is started first.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_JOB)
    fork_cpu_engine()
    serve()
