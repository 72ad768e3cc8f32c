"""Runs as data frames, for notebooks: `load("runs/demo")` for one, `load_all("runs/paper")` for a folder's.

docs/data.md lists the tables and their columns, and has examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from speedrunner.config.names import condition_name
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import StorageError
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    EpisodeRow,
    Message,
    Policy,
    Process,
    Skill,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import RunDirectoryError

if TYPE_CHECKING:
    import pandas

    from speedrunner.store.frames import Table

__all__ = [
    "AgentRecord",
    "CallNode",
    "Edit",
    "EpisodeRow",
    "Message",
    "Policy",
    "Process",
    "RunData",
    "Runs",
    "Skill",
    "SleepRecord",
    "StorageError",
    "Termination",
    "Trajectory",
    "Turn",
    "load",
    "load_all",
]


class Runs:
    """Several runs with joint tables."""

    def __init__(self, runs: Sequence[RunData]) -> None:
        self.runs = list(runs)

    def frame(self, table: Table) -> pandas.DataFrame:
        """Return a table of all runs. The first columns are `run` (the folder's path), `env`, `method`,
        `model_config` (the models'; all three as in folder names) and `seed`.

        Raises:
            ValueError: the table is unknown.
            StorageError, InvalidConfig: a run cannot be read.
        """
        import pandas

        frames = []
        for run in self.runs:
            config = run.settings
            own = condition_name(config)
            texts = {"run": str(run.path), "env": own.env, "method": own.method, "model_config": own.model}
            named: dict[str, str | int] = {**texts, "seed": config.run.seed}
            found = run.frame(table)
            for place, (name, value) in enumerate(named.items()):
                found.insert(place, name, value)
            frames.append(found)
        return pandas.concat(frames, ignore_index=True)


def load_all(*folders: Path | str) -> Runs:
    """Open all runs in folders and their subfolders, finished or not.

    Raises:
        StorageError: a folder does not exist, or there is no run in them.
    """
    paths = dict.fromkeys(path for folder in folders for path in runs_below(Path(folder)))
    if not paths:
        raise RunDirectoryError(f"no run found in {', '.join(map(str, folders))}")
    return Runs([load(path) for path in paths])
