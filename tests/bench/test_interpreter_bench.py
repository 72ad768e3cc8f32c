"""The benchmark of the interpreter's functions, over a short history."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from tests.bench import interpreter_bench as interpreter
from tests.bench.__main__ import app

pytestmark = pytest.mark.process


def test_each_function_is_timed_over_episodes_of_the_given_size() -> None:
    assert 90_000 < len(msgspec.json.encode(interpreter.make_episode(100_000))) < 110_000
    run = CliRunner().invoke(app, ["interpreter", "--episodes", "12", "--megabytes", "0.1", "--json"])
    assert run.exit_code == 0
    found = json.loads(run.stdout)
    assert found["met"] is True
    assert [each["function"] for each in found["functions"]] == list(interpreter.FUNCTIONS)
    assert all(each["cpu_s"] >= 0 and each["seconds"] > 0 for each in found["functions"])


def test_a_function_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "FUNCTIONS", {"division": "1 / 0"})
    run = CliRunner().invoke(app, ["interpreter", "--episodes", "1", "--megabytes", "0.1"])
    assert run.exit_code != 0
    assert "division failed" in str(run.exception)
