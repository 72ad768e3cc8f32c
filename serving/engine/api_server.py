"""vLLM's API server, deaf to what Slurm sends to every process of a job (`serving.engine.guard` says why).

With `--headless`, a part of a model on a node without an API server, as `vllm serve --headless` starts it.
"""

from __future__ import annotations

import runpy
import signal
import sys
from multiprocessing import resource_tracker

from serving.engine.guard import OF_A_JOB

API_SERVER = (sys.executable, "-P", "-m", "serving.engine.api_server")
"""The API server's module: the `vllm` command does not work with the CPU package, and hears too much."""

MODULE = "vllm.entrypoints.openai.api_server"


def serve_headless() -> None:
    """Serve a part of a model. The API server's module would start a second API server."""
    from vllm.entrypoints.cli.serve import run_headless
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    given = make_arg_parser(FlexibleArgumentParser()).parse_args()  # type: ignore[no-untyped-call]
    validate_parsed_serve_args(given)
    given.api_server_count = 0
    run_headless(given)


def be_deaf() -> None:
    """Block those signals, here and in the processes that are started from now on.

    Python's own resource tracker would unblock SIGTERM when the first of them needs one, so it is started
    before.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, OF_A_JOB)


if __name__ == "__main__":
    be_deaf()
    if "--headless" in sys.argv:
        serve_headless()
    else:
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
