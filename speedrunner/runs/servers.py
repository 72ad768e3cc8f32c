"""The servers of a run: fit its models to the GPUs here, serve them, and open clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from serving.deployment import Deployment, deploy, place_models
from serving.meter import LedgerRow, Reconciliation, Spending
from serving.model import Model
from serving.probes.start_check import StartCheck
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup


async def fit_models(setup: Setup, say: Callable[[str], None]) -> Setup:
    """Return the setup with models that fit the GPUs here, or their running server, and with its GPUs.

    Args:
        say: called with a line about each fitted model, and with warnings about GPUs.

    Raises `InvalidModelConfig`, `ServerFailed`: see `serving.deployment.place_models`.
    """
    placed = await place_models(setup.services, say)
    return replace(
        setup,
        model_config=placed[0][0],
        inducer_model_config=placed[-1][0],
        gpus=[gpus for _, gpus in placed],
    )


@dataclass(frozen=True)
class Engines:
    """The engine of the actor and that of every other role; often the same.

    Attributes:
        checks: checks each engine before its first use.
    """

    actor: Deployment
    others: Deployment
    checks: dict[Deployment, StartCheck]

    @asynccontextmanager
    async def open_models(
        self, setup: Setup, write_row: Callable[[LedgerRow], None], spent: float = 0.0
    ) -> AsyncIterator[tuple[Model, Model]]:
        """Yield the model of the actor and that of every other role; often the same.

        Args:
            spent: USD that earlier processes of the run have spent; it counts towards the cap.
        """
        spending = Spending(setup.config.serving.spending_cap_usd, spent)
        model_configs = {self.actor: setup.model_config}
        model_configs.setdefault(self.others, setup.inducer_model_config)
        async with AsyncExitStack() as stack:
            models = {
                engine: await stack.enter_async_context(
                    engine.client(
                        write_row,
                        prices=setup.prices[model_config.name],
                        spending=spending,
                        context=model_config.context,
                    )
                )
                for engine, model_config in model_configs.items()
            }
            yield models[self.actor], models[self.others]

    async def check(self, actor: Model, others: Model) -> None:
        """Check that the engines behind the models are reliable enough for a run. Raises `ServingError`."""
        for engine, model in {self.actor: actor, self.others: others}.items():
            await self.checks[engine].require(model)

    async def reconcile(self) -> list[Reconciliation]:
        """Return the reconciliation of each engine that exposes counters."""
        reconciliations = [await engine.reconciliation() for engine in self.checks]
        return [reconciliation for reconciliation in reconciliations if reconciliation is not None]


@asynccontextmanager
async def serve_models(
    setup: Setup, folder: Path, progress: Progress, prefix: str = ""
) -> AsyncIterator[Engines]:
    """Serve the fitted models of a setup. Their output goes to `server.log` and `inducer_server.log` in the
    folder.

    Args:
        prefix: prefix of the logs' names.

    Raises `InvalidModelConfig`, `ServerFailed`.
    """
    assert setup.gpus is not None
    logs = [folder / f"{prefix}{name}" for name in ("server.log", "inducer_server.log")]
    say, waiting = progress.say, progress.waiting
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                deploy(model_config, options, log=log, gpus=gpus, say=say, waiting=waiting)
            )
            for (model_config, options), log, gpus in zip(setup.services, logs, setup.gpus, strict=False)
        ]
        checks = {engine: StartCheck(setup.config.serving.check, say) for engine in engines}
        yield Engines(engines[0], engines[-1], checks)
