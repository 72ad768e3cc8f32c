"""`speedrunner doctor`, as people and scripts meet it; tests/engine asks the engine itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scripted_runs import in_process

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosted model's, for which no engine is looked at."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")


def test_a_line_for_each_thing_and_their_number_at_the_end(tmp_path: Path) -> None:
    done = in_process("doctor", "model=gpt-5.4-mini", f"run.dir={tmp_path}/one")
    assert (done.returncode, done.stderr) == (0, "")
    *lines, summary = done.stdout.splitlines()
    told = [line for line in lines if not line.startswith("             -> ")]
    assert all(line.startswith(("ok           ", "warning      ")) for line in told)
    assert f"ok           folder {tmp_path}: " in done.stdout
    counted = summary.partition(": ")[2]
    assert "failed" not in counted
    assert sum(int(word) for word in counted.split() if word.isdigit()) == len(told)


def test_a_failure_is_told_with_its_remedy_and_is_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    done = in_process("doctor", "model=gpt-5.4-mini", "run.dir=/proc/runs/one")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(
        n for n, line in enumerate(lines) if line.startswith("FAILED       folder /proc/runs: cannot be")
    )
    assert lines[at + 1] == "             -> choose another folder with run.dir=..., or --dir for a list"
    assert "FAILED       files of gpt-5.4-mini: " in done.stdout
    assert "2 failed" in lines[-1]


def test_scripts_get_one_object(tmp_path: Path) -> None:
    done = in_process("doctor", "model=gpt-5.4-mini", f"run.dir={tmp_path}/one", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["passed"] is True
    assert {each["level"] for each in found["findings"]} <= {"ok", "warning"}
    assert set(found["findings"][0]) == {"name", "level", "text", "remedy", "details", "found"}
