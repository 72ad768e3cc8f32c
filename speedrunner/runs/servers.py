"""The server of a run: fit its model to the GPUs here, serve it, and open clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from serving.deployment import Deployment, deploy, place_model
from serving.meter import LedgerRow, Spending
from serving.model import Model
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup


async def fit_model(setup: Setup, say: Callable[[str], None]) -> Setup:
    """Return the setup with a model that fits the GPUs here, or its running server, and with its GPUs.

    Args:
        say: called with a line about the fitted model, and with warnings about GPUs.

    Raises `InvalidModelConfig`, `ServerFailed`: see `serving.deployment.place_model`.
    """
    model_config, gpus = await place_model(*setup.service, say)
    return replace(setup, model_config=model_config, gpus=gpus)


def serve_model(setup: Setup, log: Path, progress: Progress) -> AbstractAsyncContextManager[Deployment]:
    """Serve the fitted model of a setup. The server's output goes to `log`.

    Raises `InvalidModelConfig`, `ServerFailed` on entering.
    """
    return deploy(*setup.service, log=log, gpus=setup.gpus, say=progress.say, waiting=progress.waiting)


def open_client(
    deployment: Deployment, setup: Setup, write_row: Callable[[LedgerRow], None], spent: float = 0.0
) -> AbstractAsyncContextManager[Model]:
    """Open the model for a run.

    Args:
        spent: USD that earlier processes of the run have spent; it counts towards the cap.
    """
    return deployment.client(
        write_row,
        prices=setup.prices,
        spending=Spending(setup.config.serving.spending_cap_usd, spent),
        context=setup.model_config.context,
    )
