"""The simulators beside which ours are measured: how they are started, and how their solutions are read."""

from __future__ import annotations

import math
from collections.abc import Iterator

import psutil
import py4j.java_gateway as py4j
import pytest
from py4j.protocol import Py4JError

from envs import Task
from envs.scienceworld_phrases import PHRASES
from tests import upstream_envs
from tests.processes import HANGS_S
from tests.upstream_envs import Compared, Effort, UpstreamScienceWorld, gold_call


@pytest.fixture(scope="module")
def scienceworld() -> Iterator[UpstreamScienceWorld]:
    upstream = UpstreamScienceWorld()
    process = java()
    yield upstream
    upstream._env.close()
    process.wait(HANGS_S)


def java() -> psutil.Process:
    (found,) = (each for each in psutil.Process().children(recursive=True) if each.name() == "java")
    return found


@pytest.mark.slow
class TestScienceWorld:
    def test_it_plays(self, scienceworld: UpstreamScienceWorld) -> None:
        scienceworld.reset(Task("scienceworld", "find-plant", 0))
        assert scienceworld.step("look_around", {}) is False
        assert "focus on" in " ".join(scienceworld.gold("find-plant", 0))

    @pytest.mark.usefixtures("scienceworld")
    def test_java_refuses_who_has_no_token(self) -> None:
        connections = java().net_connections("tcp")
        ports = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
        assert ports
        for port in ports:
            gateway = py4j.JavaGateway(gateway_parameters=py4j.GatewayParameters(port=port))
            with pytest.raises(Py4JError):
                gateway.jvm.System.currentTimeMillis()
            gateway.close()


def test_gold_paths_are_read_as_primitives() -> None:
    for phrase, call in {
        "look in sink": ("look_in", {"obj": "sink"}),
        "look around": ("look_around", {}),
        "drop sodium": ("put_down", {"obj": "sodium"}),
        "use thermometer on sea": ("use", {"obj": "thermometer", "target": "sea"}),
        "connect a b terminal 1 to anode in c": (
            "connect",
            {"obj_a": "a b terminal 1", "obj_b": "anode in c"},
        ),
        "wait": ("wait", {}),
    }.items():
        assert gold_call(phrase) == call
        assert phrase in (PHRASES[call[0]](**call[1]), "drop sodium", "wait")
    with pytest.raises(ValueError, match="no primitive says 'fly'"):
        gold_call("fly")


@pytest.mark.slow
@pytest.mark.parametrize("env", ["babyai", "scienceworld", "crafter"])
def test_each_figure_stands_beside_upstream_s(env: str) -> None:
    found = upstream_envs.compare({env: Effort(warm_s=0, worlds=1, rounds=2, steps=10)})
    rows = found.tables[0].rows
    assert [(each.env, each.figure) for each in rows] == [
        (env, each) for each in ("steps/s", "resets/s", "MB")
    ]
    for each in rows:
        assert 0 < each.ours < math.inf
        assert each.ratio == pytest.approx(each.ours / each.upstream)


def test_targets_are_ratios_and_megabytes_of_ours() -> None:
    assert Compared("crafter", "steps/s", 1200.0, 150.0, 8.0).judged.verdict == "at least 6: met"
    assert Compared("crafter", "resets/s", 90.0, 10.0, 9.0).judged.verdict == "at least 10: MISSED"
    assert Compared("scienceworld", "MB", 500.0, 1500.0, 1 / 3).judged.verdict == "at most 480: MISSED"
    assert Compared("babyai", "MB", 60.0, 70.0, 6 / 7).judged.met is None
