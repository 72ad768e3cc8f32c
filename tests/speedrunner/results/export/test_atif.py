"""ATIF trajectories of a run, read by the format's own package."""

from __future__ import annotations

from pathlib import Path

import pytest
from atif import Trajectory as Atif

from speedrunner.store.run_data import RunData
from tests.scripted_runs import ScriptedRun, in_process
from tests.speedrunner.store.test_stored_format import STORED

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def run(learnt: ScriptedRun) -> RunData:
    return learnt.data


@pytest.fixture(scope="module")
def exported(run: RunData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    done = in_process("export", str(run.path), "--to", "atif", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"12 trajectories of 1 run written to {out}\n"
    return out / "run"


def opened(path: Path) -> Atif:
    return Atif.model_validate_json(path.read_bytes())


def test_has_the_system_prompt_and_the_tool_definitions(run: RunData, exported: Path) -> None:
    found = opened(exported / "test-0004-0000-0000.json")
    episode = run.evaluations(4)[0]
    assert found.schema_version == "ATIF-v1.8"
    assert [step.source for step in found.steps[:2]] == ["system", "user"]
    assert found.steps[0].message == episode.turns[0].messages[0].content
    assert found.agent.tool_definitions is not None
    names = [each["function"]["name"] for each in found.agent.tool_definitions]
    assert {"walk", "look", "to_flag"} <= set(names)
    assert found.agent.model_name == "tiny-random"


def test_has_the_conversation_of_an_inducer(exported: Path) -> None:
    found = opened(exported / "sleep-0001-0000.json")
    assert found.agent.tool_definitions is not None
    assert "write_skill" in [each["function"]["name"] for each in found.agent.tool_definitions]
    assert found.extra is not None
    assert found.extra["termination"] == "submitted"


def test_has_tokens_termination_and_score(run: RunData, exported: Path) -> None:
    found = opened(exported / "train-0000-0000.json")
    usage = run.trajectory("train/0000").usage
    metrics = found.final_metrics
    assert metrics is not None
    assert (metrics.total_prompt_tokens, metrics.total_cached_tokens) == (usage.prompt, usage.cached)
    assert metrics.total_completion_tokens == usage.completion
    assert found.extra is not None
    assert (found.extra["termination"], found.extra["score"], found.extra["success"]) == (
        "success",
        1.0,
        True,
    )


def test_has_the_primitives_of_a_skill_as_steps_without_a_model(exported: Path) -> None:
    steps = opened(exported / "test-0004-0000-0000.json").steps
    answer, *below = (step for step in steps if step.source == "agent")
    calls = [step.tool_calls[0].function_name for step in (answer, *below) if step.tool_calls]
    assert calls == ["to_flag", "look", "walk"]
    assert [step.llm_call_count for step in (answer, *below)] == [1, 0, 0]
    assert answer.metrics is not None
    assert answer.timestamp is not None
    seen = below[1].observation
    assert seen is not None
    assert seen.results[0].content == "You are at the flag."


def test_shows_a_reply_as_the_observation_of_its_call(run: RunData, exported: Path) -> None:
    answer = opened(exported / "train-0000-0000.json").steps[2]
    first, second = run.trajectory("train/0000").turns[:2]
    assert answer.observation is not None
    assert answer.tool_calls is not None
    (result,) = answer.observation.results
    assert result.content == second.messages[0].content
    assert result.source_call_id == answer.tool_calls[0].tool_call_id
    assert answer.message == first.text


def test_a_run_of_format_3_is_exported(tmp_path: Path) -> None:
    done = in_process("export", str(STORED), "--to", "atif", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(opened(path).steps for path in (tmp_path / "out").rglob("*.json"))
