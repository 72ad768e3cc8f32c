"""`speedrunner init`: what it writes works as it is, and nothing is overwritten. `speedrunner list`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving.model_configs import load_model_config
from tests.scripted_runs import Runs, complaint, in_process, script


@pytest.mark.slow
def test_a_fresh_environment_and_method_pass_their_checks_and_tests(tmp_path: Path) -> None:
    for kind, name in (("env", "treasure_hunt"), ("method", "diary")):
        assert in_process("init", kind, name, str(tmp_path / "mine")).returncode == 0
    here = tmp_path / "mine"
    assert sorted(file.name for file in here.iterdir()) == [
        *("diary.py", "test_diary.py", "test_treasure_hunt.py", "treasure_hunt.py"),
    ]
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(test, cwd=here, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_maze.py").write_text("mine")
    line = complaint(in_process("init", "env", "maze", str(tmp_path)))
    assert line == f"{tmp_path / 'test_maze.py'} already exists: choose another name or folder"
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("env", "my world"), ("method", "class"), ("model", "../up"), ("method", "json")],
)
def test_a_refused_name_writes_nothing(kind: str, name: str, tmp_path: Path) -> None:
    complaint(in_process("init", kind, name, str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_served_model_is_described_by_its_address(shared_corridor: Runs, tmp_path: Path) -> None:
    url = str(shared_corridor(script()).server.endpoint)
    done = in_process("init", "model", url, str(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    config = load_model_config(str(file))
    assert (config.base_url, config.api, config.hosted) == (url, "chat", True)
    line = complaint(in_process("init", "model", f"{url}#other", str(tmp_path)))
    assert line.endswith(f"name one, such as {url}#MODEL")
    for wrong in ("http://127.0.0.1:9/v1", "http://127.0.0.1:9 9/v1"):
        assert "does not list the served models" in complaint(in_process("init", "model", wrong))
    line = complaint(in_process("init", "model", "http://me:secret@127.0.0.1:9/v1"))
    assert "user information" in line
    assert "secret" not in line


def test_a_key_goes_to_no_server_without_encryption(
    shared_corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    url = str(shared_corridor(script()).server.endpoint)
    assert in_process("init", "model", url, str(tmp_path)).returncode == 0
    (file,) = tmp_path.iterdir()
    assert load_model_config(str(file)).api_key_env is None
