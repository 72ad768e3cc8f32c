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


def scheduler_options(model_config: ModelConfig, step_log: Path | None) -> tuple[list[str], dict[str, str]]:
    """Return a server's arguments and environment variables for our scheduler, which makes convoys and logs
    steps. Empty if it needs neither, and for a scheduler in `server.flags`: that is the user's choice.

    Args:
        step_log: file of its log of steps; `None` for no log.
    """
    flags = model_config.server.flags
    if "scheduler-cls" in flags or not (model_config.convoys or step_log):
        return [], {}
    is_sync = not model_config.gpus or flags.get("async-scheduling") is False
    scheduler = f"{OWN_MODULE}.{'SyncConvoyScheduler' if is_sync else 'ConvoyScheduler'}"
    settings = {STEPS_VARIABLE: str(model_config.convoys), LOG_VARIABLE: str(step_log or "")}
    return [SCHEDULER_FLAG, scheduler, *([GRAPHS_FLAG] if step_log else [])], settings
