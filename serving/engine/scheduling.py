"""What a server's owner and its scheduler share: which class schedules, and its settings.

The owner starts the server with them (`serving.engine.server`); the class reads them in the engine's process
(`serving.engine.convoy`).
"""

from __future__ import annotations

from pathlib import Path

from serving.model_config import ModelConfig

SCHEDULER_FLAG = "--scheduler-cls"
OWN_MODULE = "serving.engine.convoy"
"""Module of our schedulers: with asynchronous scheduling, vLLM's default on GPUs, and without."""

GRAPHS_FLAG = "--cudagraph-metrics"
"""With it, vLLM reports how each step used CUDA graphs."""

STEPS_VARIABLE = "SPEEDRUNNER_CONVOY_STEPS"
"""Environment variable of a server: most steps from one admission of requests to the next; 0: none waits."""

LOG_VARIABLE = "SPEEDRUNNER_STEP_LOG"
"""Environment variable of a server: the file of the log; empty: no step is logged."""

NO_CONVOYS = "SpeedRunner: with this version of vLLM requests start at once"


def uses_own_scheduler(model_config: ModelConfig, step_log: Path | None) -> bool:
    """Return whether a server needs our scheduler: for convoys, or for a log of its steps. A scheduler in
    `server.flags` is the user's choice, and takes the place of ours."""
    has_other = "scheduler-cls" in model_config.server.flags
    return not has_other and bool(model_config.convoys or step_log)


def scheduler_arguments(model_config: ModelConfig, step_log: Path | None) -> list[str]:
    """Return the arguments of a server that choose its scheduler; empty for vLLM's own.

    Args:
        step_log: file of its log of steps; `None` for no log.
    """
    if not uses_own_scheduler(model_config, step_log):
        return []
    is_sync = not model_config.gpus or model_config.server.flags.get("async-scheduling") is False
    scheduler = f"{OWN_MODULE}.{'SyncConvoyScheduler' if is_sync else 'ConvoyScheduler'}"
    return [SCHEDULER_FLAG, scheduler, *([GRAPHS_FLAG] if step_log else [])]


def scheduler_settings(model_config: ModelConfig, step_log: Path | None) -> dict[str, str]:
    """Return the environment variables of a server that its scheduler reads."""
    if not uses_own_scheduler(model_config, step_log):
        return {}
    return {STEPS_VARIABLE: str(model_config.convoys), LOG_VARIABLE: str(step_log or "")}
