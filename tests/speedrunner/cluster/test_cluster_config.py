"""What is said of a site: a file of `configs/cluster/` or one's own, and changes to its keys."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from speedrunner.cluster.cluster_config import Cluster, cluster_of
from speedrunner.config.compose import group_choices
from speedrunner.config.schema import InvalidConfig
from tests.golden_tables import Golden, refusals

OWN = "gpus: 4\ncpus: 8\nmemory_gb: 64\nminutes: 60\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mysite.yaml"
    file.write_text(OWN)
    return file


@pytest.mark.parametrize("name", group_choices("cluster"))
def test_every_bundled_file_is_one(name: str) -> None:
    cluster, *_ = cluster_of([f"cluster={name}"])
    assert (cluster.gpus == 0) == (name == "cpu")
    assert (cluster.partition, cluster.account, cluster.container) == (None, None, None)


def test_a_file_of_one_s_own_is_named_by_its_path(file: Path) -> None:
    assert cluster_of([f"cluster={file}"]) == (
        Cluster(gpus=4, cpus=8, memory_gb=64, minutes=60),
        file,
        [],
    )


def test_single_keys_win_over_the_file(file: Path) -> None:
    changes = ["cluster.minutes=90", "cluster.options=[--qos=long,--exclusive]", "cluster.partition=a100"]
    cluster, *_ = cluster_of([f"cluster={file}", *changes])
    assert (cluster.minutes, cluster.partition) == (90, "a100")
    assert cluster.options == ["--qos=long", "--exclusive"]


@pytest.mark.parametrize("given", [[], ["cluster.gpus=1"]])
def test_one_must_be_named(given: list[str]) -> None:
    with pytest.raises(InvalidConfig, match=r"^name one cluster: cluster=NAME .*, not none$"):
        cluster_of(given)


def test_what_is_wrong_is_named_on_one_line(golden: Golden) -> None:
    changes = (
        *("minuets=9", "minutes=0", "cpuss=1", "gpus=-1", "minutes=", "memory_gb=0", "partition=a b"),
        *("options=[--qos=very long]", "options=["),
    )
    tries = [(change, partial(cluster_of, ["cluster=cpu", f"cluster.{change}"])) for change in changes]
    golden("cluster/refused_settings.txt", refusals(tries, InvalidConfig))


@pytest.mark.parametrize("content", ["[]", "gpus: 1\n", "{", OWN + "nodes: 2\n"])
def test_a_file_that_is_no_cluster_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mysite.yaml"
    file.write_text(content)
    with pytest.raises(InvalidConfig, match=r"mysite\.yaml") as error:
        cluster_of([f"cluster={file}"])
    assert "\n" not in str(error.value)
