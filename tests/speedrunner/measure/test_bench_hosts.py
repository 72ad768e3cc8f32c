"""The hosts' benchmark: what it measures, what it leaves out, and what it asks for."""

from __future__ import annotations

import json

import psutil
import pytest
from typer.testing import CliRunner

from speedrunner.cli.main import app
from speedrunner.hosts import host_pool
from speedrunner.measure import bench_hosts
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


async def test_each_number_of_hosts_has_its_figures_and_leaves_no_process() -> None:
    before = psutil.Process().children(recursive=True)
    found = await bench_hosts.measure_hosts(lambda line: None, [Corridor.name], [1, 2])
    one, two = found.tables[0].rows
    assert (one.hosts, two.hosts) == (1, 2)
    for each in (one, two):
        assert 0 < each.ready_s < each.begun_s
        assert each.cpu_s > 0
        assert each.skills_s > 0
        assert each.skills_mb_each > 1
    assert two.mb > one.mb > 10
    assert two.mb_each == two.mb / 2
    assert (found.met, found.notes) == (None, [])
    assert set(psutil.Process().children(recursive=True)) <= set(before)


async def test_hosts_that_there_is_no_memory_for_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pool, "available_mb", lambda: Corridor.memory_mb + host_pool.SKILLS_MB)
    found = await bench_hosts.measure_hosts(lambda line: None, [Corridor.name], [1, 1000])
    assert [each.hosts for each in found.tables[0].rows] == [1]
    (note,) = found.notes
    assert note.startswith(f"1000 hosts of {Corridor.name} take up to 330,000 MB")


def test_what_is_asked_of_babyai_stands_beside_its_figures() -> None:
    done = CliRunner().invoke(app, ["bench", "hosts", "--env", "babyai", "--counts", "32", "--json"])
    found = json.loads(done.stdout)
    asked = {each["name"]: each["at_most"] for each in found["figures"]}
    assert asked == {
        "32 hosts of babyai, ready_s": 3.0,
        "32 hosts of babyai, cpu_s": 4.0,
        "32 hosts of babyai, mb_each": 20.0,
    }
    assert done.exit_code == (0 if found["met"] else 1)
    (row,) = found["hosts"]
    assert row["cpu_s"] <= 4.0
    assert row["mb_each"] <= 20.0


def test_counts_that_are_none() -> None:
    done = CliRunner().invoke(app, ["bench", "hosts", "--counts", "1,many"])
    assert str(done.exception) == "--counts 1,many: write numbers with commas, such as 1,4,16"
