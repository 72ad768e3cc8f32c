"""`speedrunner serve` as a process, and what a user of it sees."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.errors import ServerFailed
from serving.model_configs import CHECKOUT
from tests.processes import HANGS_S, words
from tests.scripted_runs import command


@contextmanager
def serving(*settings: str, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command, ended in any case; modules of the folder `first` stand before all others."""
    process = subprocess.Popen(
        command("serve", "model=tiny-random", *settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": f"{first}:{CHECKOUT}"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGS_S)


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What it says, up to the line with that word."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"it ended before it said {word!r}: {lines} {process.communicate()[1]}")


def check_serving_on_a_port(first: str = "") -> None:
    """It answers those who can read its key, and nobody else, until it is stopped."""
    port = free_port()
    with serving(f"serving.port={port}", first=first) as process:
        *_, ready, key_line, attach_line = lines_until(process, "another terminal")
        url = f"http://127.0.0.1:{port}/v1"
        assert ready == f"tiny-random is ready at {url}; press Ctrl-C to stop it"
        key_file = Path(key_line.removeprefix("its API key is in "))
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert shlex.split(attach_line.partition(": ")[2]) == [
            *["speedrunner", "run", "model=tiny-random", f"serving.url={url}"],
            f"serving.api_key_file={key_file}",
        ]
        key = key_file.read_text().strip()
        asyncio.run(attach(Endpoint.parse(url, api_key=key), "tiny-random"))
        with pytest.raises(ServerFailed, match="refuses the API key"):
            asyncio.run(attach(Endpoint.parse(url, api_key="x" * len(key)), "tiny-random"))
        processes = psutil.Process(process.pid).children(recursive=True)
        assert any("vllm" in words(each) for each in processes)
        assert not any(key in words(each) for each in processes)
        listening = [address.laddr for each in processes for address in listeners(each)]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, out) == (0, "stopped by SIGTERM; the server was stopped\n")
    # A server that takes long to start is told of now and then.
    assert [line for line in err.splitlines() if not line.startswith("starting vLLM, ")] == []
    assert not key_file.exists()
    assert not any(each.is_running() for each in processes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listeners(process: psutil.Process) -> list[psutil._common.pconn]:
    """TCP sockets on which a process listens."""
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
