"""The workers' benchmark: what it measures, what it leaves out, and what it asks for."""

from __future__ import annotations

import psutil
import pytest
from typer.testing import CliRunner

from speedrunner.workers import worker_pool
from tests.bench import workers as bench_workers
from tests.bench.__main__ import app
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


async def test_each_number_of_workers_has_its_figures_and_leaves_no_process() -> None:
    before = psutil.Process().children(recursive=True)
    found = await bench_workers.measure_workers(lambda line: None, [Corridor.name], [1, 2])
    one, two = found.tables[0].rows
    assert (one.workers, two.workers) == (1, 2)
    for each in (one, two):
        assert 0 < each.ready_s < each.begun_s
        assert each.cpu_s > 0
        assert each.skills_s > 0
        assert each.skills_mb_each > 1
    assert two.mb > one.mb > 10
    assert two.mb_each == two.mb / 2
    assert (found.met, found.notes) == (None, [])
    assert set(psutil.Process().children(recursive=True)) <= set(before)


async def test_workers_that_there_is_no_memory_for_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "available_mb", lambda: Corridor.memory_mb + worker_pool.SKILLS_MB)
    found = await bench_workers.measure_workers(lambda line: None, [Corridor.name], [1, 1000])
    assert [each.workers for each in found.tables[0].rows] == [1]
    (note,) = found.notes
    assert note.startswith(f"1000 workers of {Corridor.name} take up to 330,000 MB")


def test_counts_that_are_none() -> None:
    done = CliRunner().invoke(app, ["workers", "--counts", "1,many"])
    assert str(done.exception) == "--counts 1,many: write numbers separated by commas, such as 1,4,16"
