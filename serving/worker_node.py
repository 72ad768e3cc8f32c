"""Serves the part of a model on a worker node of a Slurm job, until the job's script stops it."""

from __future__ import annotations

import asyncio
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from serving.deployment import server_gpus
from serving.engine import guard
from serving.engine.nodes import worker_rank
from serving.engine.server import VllmServer
from serving.model_config import ModelConfig
from serving.options import ServiceOptions
from serving.sizing import size_model
from serving.weights import prepare

POLL_S = 0.5


async def serve_part(
    services: Sequence[tuple[ModelConfig, ServiceOptions]],
    folder: Path,
    prefix: str,
    say: Callable[[str], None],
) -> None:
    """Serve this node's part of a model until standard input ends.

    The signals that Slurm sends to each process of a job are ignored: the run on the head node gets them too,
    and its episodes still need the model.

    Args:
        services: the models of the job, one of them over several nodes.
        folder: folder for vLLM's log, `PREFIXserver_nodeRANK.log`.
        prefix: start of the log's name.
        say: called with lines about what happens.

    Raises:
        InvalidModelConfig, ServerFailed: the part cannot start, or ended by itself.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, guard.OF_A_JOB)
    rank = worker_rank()
    model_config, options = next(each for each in services if each[0].nodes > 1)
    (gpus,) = await server_gpus([(model_config, options)], say)
    model_config, weights = await size_model(model_config, None, gpus, say), prepare(model_config, say)
    server = VllmServer(
        model_config, weights, folder / f"{prefix}server_node{rank}.log", gpus=gpus, rank=rank
    )
    try:
        await server.start()
        while not (await asyncio.to_thread(select.select, [sys.stdin], [], [], POLL_S))[0]:
            server.require_alive()
    finally:
        await server.stop()
