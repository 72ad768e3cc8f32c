"""How much memory workers may take: what the machine has, or less where a control group has a limit."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from speedrunner.workers import available_memory
from speedrunner.workers.available_memory import MB, available_mb


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group without a limit, below another; their folder."""
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/slurm/job\n")
    monkeypatch.setattr(available_memory, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(available_memory, "CGROUPS", tmp_path / "groups")
    folder = tmp_path / "groups" / "slurm" / "job"
    folder.mkdir(parents=True)
    limit(folder, "max")
    return folder


def limit(folder: Path, most: object, used: int = 0, cache: int = 0) -> None:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 0\nfile {cache}\ninactive_file {cache}\n")


def test_it_is_what_the_machine_has_where_nothing_is_limited(job: Path) -> None:
    assert 0 < available_mb() <= psutil.virtual_memory().total // MB


def test_a_limit_leaves_what_is_not_used_and_the_file_cache(job: Path) -> None:
    limit(job, 50 * MB, used=30 * MB, cache=5 * MB)
    assert available_mb() == 25
