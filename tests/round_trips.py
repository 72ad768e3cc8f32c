"""A run out as ATIF trajectories and in again, with every record the same."""

from __future__ import annotations

from pathlib import Path

from atif import Trajectory

from speedrunner.export.atif import write_trajectories
from speedrunner.export.atif_import import import_run

LOGS = {"server.log", "inducer_server.log", "workers.log"}


def records(run: Path) -> dict[str, bytes]:
    """The content of every file of a run except its logs."""
    files = (each for each in run.rglob("*") if each.is_file() and each.name not in LOGS)
    return {str(each.relative_to(run)): each.read_bytes() for each in files}


def check_round_trip(run: Path, folder: Path) -> Path:
    """Export a run and import it again; nothing is lost. Returns the imported run.

    The other side's own models read each trajectory.
    """
    exported = folder / "atif"
    count = write_trajectories(run, exported)
    found = [each for each in exported.rglob("*.json") if "records" not in each.relative_to(exported).parts]
    assert len(found) == count > 0
    for each in found:
        assert Trajectory.model_validate_json(each.read_bytes()).schema_version == "ATIF-v1.8"
    import_run(exported, folder / "imported")
    assert records(folder / "imported") == records(run)
    return folder / "imported"
