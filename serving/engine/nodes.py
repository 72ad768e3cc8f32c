"""A model that is spread over several nodes of a Slurm job: its API server here, its followers there.

    python -m serving.engine.nodes NODES NAME,NAME,... OPTIONS OF THE API SERVER

vLLM's own processes find each other by an address and a port of this node. On each other node a follower
waits (`serving.engine.follower`), started by the job's script: Slurm signals all processes of a run's step,
and an `srun` among them would end the followers. They get the environment variables NAME, NAME, ... too. If
either the API server or a follower's part ends, the rest does. Each follower holds a connection to this
process, and ends its part when that breaks: nothing has to reach it when this process ends, in whatever
way. What its part prints comes through that connection into this process's own output.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from serving.engine.api_server import API_SERVER
from serving.engine.meeting import Follower, Part, gathered, meeting_file, network, say
from serving.errors import ServerFailed

SPREAD = (sys.executable, "-P", "-m", "serving.engine.nodes")

POLL_S = 0.2
FOLLOWERS_END_S = 4.0
CHUNK = 1 << 16


def run(count: int, names: Sequence[str], arguments: Sequence[str]) -> int:
    """Serve until it is interrupted, or a part of it ends. Returns the status of that as a shell would.

    Raises:
        ServerFailed: the other nodes' followers did not come.
    """
    with gathered(meeting_file(count), count - 1) as (followers, notice):
        own = followers[0].lifeline.getsockname()[0]  # the way that leads to the others
        place = ["--master-addr", own, "--master-port", str(_free_port(own))]
        arguments = [*arguments, "--nnodes", str(count), *place]
        environment = {name: os.environ[name] for name in names if name in os.environ}
        for each in followers:
            with contextlib.suppress(OSError):  # is seen below
                say(each.lifeline, Part(notice.launchers, arguments, environment))
        head = subprocess.Popen(
            [*API_SERVER, *arguments, "--node-rank", "0"],
            env={**os.environ, **network(own, os.environ)},
        )
        try:
            if (ended := _until_a_part_ends(head, followers)) is not None:
                print(f"the part of the model on {ended.node} has ended", flush=True)
                return 1
        except KeyboardInterrupt:
            head.send_signal(signal.SIGINT)
        finally:
            _dismiss(followers)
        status = head.wait()
    return 128 - status if status < 0 else status


def _until_a_part_ends(head: subprocess.Popen[bytes], followers: Sequence[Follower]) -> Follower | None:
    """Pass on what followers print. Returns the one whose part has ended; `None` where the server has."""
    by_lifeline = {each.lifeline: each for each in followers}
    while head.poll() is None:
        for lifeline in select.select(by_lifeline, [], [], POLL_S)[0]:
            if not _passed_on(lifeline):
                return by_lifeline[lifeline]
    return None


def _dismiss(followers: Sequence[Follower]) -> None:
    """Let them end their parts, and wait until they have, which their ends of the connections tell."""
    left = {each.lifeline for each in followers}
    for lifeline in left:
        with contextlib.suppress(OSError):
            lifeline.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + FOLLOWERS_END_S
    while left and time.monotonic() < deadline:
        for lifeline in select.select(left, [], [], POLL_S)[0]:
            if not _passed_on(lifeline):
                left.remove(lifeline)


def _passed_on(lifeline: socket.socket) -> bool:
    """Print what has come; false at its end."""
    try:
        said = lifeline.recv(CHUNK)
    except OSError:
        return False
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    return bool(said)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    try:
        exit_status = run(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:])
    except ServerFailed as error:
        sys.exit(f"ServerFailed: {error}")
    except KeyboardInterrupt:
        exit_status = 130
    sys.exit(exit_status)
