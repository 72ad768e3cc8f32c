"""What happens to a run when its real engine fails: one case of each fault."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
import yaml

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_counters
from serving.model_config import ModelConfig
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.engine.watched_runs import PLANNED, Command
from tests.processes import all_end, runs, words
from tests.scripted_runs import check_finished

pytestmark = pytest.mark.slow


def model_config_file(folder: Path, model_config: ModelConfig) -> str:
    """A model config as an override."""
    file = folder / "changed.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(model_config)))
    return f"model.name={file}"


def test_a_killed_server_is_started_again_and_the_run_finishes(start: Callable[..., Command]) -> None:
    run = start()
    run.requests(10)
    run.api_server().kill()
    done = run.end()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("; a new one is started, and the run resumes") == 1
    check_finished(run.run, PLANNED, sleeps=1)
    data = load(run.run)
    lost = [row for row in data.ledger if row.wasted]
    assert lost
    assert {row.status for row in lost} <= {"failed", "aborted"}
    assert not any(row.termination.is_fault for row in data.episodes)
    assert "DIFFER" not in done.stdout


def test_answers_lost_to_a_shutdown_are_asked_for_again(
    start: Callable[..., Command], tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    # Long answers, so that the signal meets them in their middle.
    actor = msgspec.structs.replace(tiny_model_config.roles.actor, thinking_tokens=300)
    model_config = msgspec.structs.replace(
        tiny_model_config, roles=msgspec.structs.replace(tiny_model_config.roles, actor=actor)
    )
    # The API server may kill the core before its last answers are out, and then waits for them without a
    # limit. Only our watchdog ends that.
    run = start(
        *(model_config_file(tmp_path, model_config), "env=tests.odd_envs:Ring", "run.rollouts=0"),
        *("serving.hang_timeout_s=40", "model.actor.max_calls=3"),
    )
    run.requests(3)
    server = run.api_server()
    arguments = server.cmdline()
    endpoint = Endpoint.on_socket(Path(arguments[arguments.index("--uds") + 1]))

    def writing() -> bool:
        written = asyncio.run(read_counters(endpoint)).generated
        answered = sum(row.usage.completion for row in load(run.run).requests if row.usage)
        return 100 < written - answered < 600  # of the 1,200 tokens that four answers take

    run.wait_for(writing)
    (core,) = (each for each in server.children() if "EngineCore" in each.name())
    core.send_signal(signal.SIGINT)
    done = run.end()
    assert (done.returncode, done.stderr) == (0, "")
    check_finished(run.run, [f"test/0000/{number:04d}" for number in range(4)], sleeps=0)
    data = load(run.run)
    assert {row.termination for row in data.episodes} == {Termination.CALL_LIMIT}
    # The engine chooses between a 200 that says "abort", a 500, a lost connection and no answer; its answer
    # is lost in each case, and the request is in the ledger. (The client's own tests play each.)
    lost = [row for row in data.ledger if row.wasted]
    assert lost
    assert {row.status for row in lost} <= {"aborted", "failed"}
    assert {row.error for row in lost if row.status == "aborted"} <= {
        "the engine was shut down in the middle of the answer",
        "CancelledError",  # another request found the engine dead first
    }


def test_ctrl_c_while_the_server_starts_leaves_no_process(start: Callable[..., Command]) -> None:
    run = start()
    run.wait_for(lambda: any("api_server" in words(each) for each in run.tree))
    everything = run.tree
    run.process.send_signal(signal.SIGINT)
    done = run.end()
    assert (done.returncode, done.stderr) == (130, "")
    assert all_end(everything)


def core(run: Command) -> psutil.Process:
    """vLLM's engine core below a run."""
    (found,) = (each for each in run.tree if "EngineCore" in words(each))
    return found


def test_an_engine_that_hangs_is_ended_and_started_again_and_the_run_finishes(
    start: Callable[..., Command],
) -> None:
    run = start("serving.hang_timeout_s=40")
    run.requests(30)
    core(run).suspend()  # the API goes on answering
    done = run.end()
    assert (done.returncode, done.stderr) == (0, "")
    assert "the engine hangs: requests run, and it shows no progress" in done.stdout
    assert done.stdout.count("; a new one is started, and the run resumes") == 1
    check_finished(run.run, PLANNED, sleeps=1)
    cut = [row for row in load(run.run).requests if row.wasted]
    assert cut
    assert all(row.usage is None and row.at_most is not None for row in cut if row.status == "aborted")
    assert "DIFFER" not in done.stdout


def test_during_a_run_nothing_listens_for_strangers_and_ctrl_c_leaves_no_process(
    start: Callable[..., Command],
) -> None:
    """The engine's sockets and those of a simulator in Java, looked at and knocked at from outside."""
    run = start(
        *("env=scienceworld", "env.family=4", "method=react", "run.rollouts=0", "run.test_episodes=2"),
        *("run.in_flight=2", "run.drain_s=1", "model.actor.max_calls=1000"),
    )
    run.requests(6)  # workers play, the engine answers
    tcp: set[int] = set()  # Java's: the engine has none
    for process in filter(runs, run.tree):
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN:
                assert each.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), (process.cmdline(), each)
                assert "java" in process.name(), (process.cmdline(), each)
                tcp.add(each.laddr.port)
        for each in process.net_connections("unix"):
            path = str(each.laddr)
            if path and each.raddr in ("", None):
                assert path.startswith("/"), f"{path} is abstract: every user could connect"
                folder = Path(path).parent
                if folder.exists():
                    assert folder.stat().st_mode & 0o077 == 0, path
    assert tcp
    for port in tcp:
        for greeting in (b"GET /v1/models HTTP/1.0\r\n\r\n", b"c\nj\njava.lang.System\nexit\ni3\ne\n"):
            with socket.socket() as stranger:
                stranger.settimeout(1.0)
                try:
                    stranger.connect(("127.0.0.1", port))
                    stranger.sendall(greeting)
                    reply = stranger.recv(1000)
                except OSError:
                    continue
                assert b"200 OK" not in reply
                assert not reply.startswith((b"!y", b"y")), f"port {port} ran a command for a stranger"
    everything = run.tree
    names = [words(each) for each in everything]
    assert any("api_server" in name for name in names)
    assert any("speedrunner.workers.fork_server_process" in name for name in names)
    run.process.send_signal(signal.SIGINT)
    done = run.end()
    assert (done.returncode, done.stderr) == (130, "")
    assert all_end(everything)
    assert not (run.run / "lock").exists()
    assert not any(row.termination.is_fault for row in load(run.run).episodes)
