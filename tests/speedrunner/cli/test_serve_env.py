"""`speedrunner serve env` as a process, played by our own client."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import envs
from envs import Task
from serving.model_configs import CHECKOUT
from speedrunner.cli.local_server import read_token
from tests.babyai_player import next_step
from tests.processes import HANGS_S, all_end, tree
from tests.scripted_runs import command, complaint, in_process

pytestmark = pytest.mark.process

SEED = 7


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "token"


@pytest.fixture
def server(token_file: Path) -> Iterator[subprocess.Popen[str]]:
    words = command("serve", "env", "babyai", "--port", "0", "--token-file", str(token_file))
    with subprocess.Popen(
        words, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def play_babyai(env: envs.TextEnv, opening: str) -> None:
    """Fulfil a mission to pick up one thing and to go to another."""
    first, then = (
        re.search(r"pick up (?:the|a) (\w+ \w+)", opening),
        re.search(r"go to (?:the|a) (\w+ \w+)", opening),
    )
    assert first
    assert then
    observation = opening
    for _ in range(60):
        carries = f"You carry a {first[1]}" in observation
        step = next_step((then if carries else first)[1], observation)
        observation = env.call("act", text=step or ("go_forward" if carries else "pick_up()")) or ""
        if env.done:
            return


def test_our_own_client_plays_babyai_to_success(server: subprocess.Popen[str], token_file: Path) -> None:
    assert server.stderr is not None
    lines = server.stderr.readline(), server.stderr.readline()
    found = re.fullmatch(r"babyai is at (http://127\.0\.0\.1:\d+); press Ctrl-C to stop\n", lines[0])
    assert found, lines
    assert lines[1] == f"clients send the token in {token_file} as password\n"
    env = envs.make("openenv", url=found[1], observation="text", token_file=str(token_file))
    opening = env.reset(Task("openenv", "default", SEED)).observation
    world = envs.splits("babyai").train[SEED]
    local = envs.make("babyai")
    assert opening.endswith(local.reset(world).observation)
    play_babyai(env, opening)
    assert env.outcome().success
    env.reset(Task("openenv", "default", SEED))
    below = tree(server.pid)
    server.terminate()
    out, err = server.communicate(timeout=HANGS_S)
    assert (server.returncode, out, err) == (0, "", "stopped by SIGTERM\n")
    assert all_end(below)
    env.close()


def test_a_token_file_below_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_token(Path("~/token")) == (tmp_path / "token").read_text().strip()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere"], "nowhere"),
        (["babyai", "size=3"], "size"),
        (["babyai", "--token-file", "/"], "/"),
        (["babyai", "run.max_actions=x"], "max_actions"),
        (["scienceworld", "family=99"], "family"),
    ],
)
def test_what_cannot_be_served_is_one_line(words: list[str], problem: str) -> None:
    assert problem in complaint(in_process("serve", "env", *words, "--port", "0"))
