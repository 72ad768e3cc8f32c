"""`speedrunner show`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from envs import Outcome
from serving.model_config import Roles
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.loop import plain_messages
from speedrunner.agents.texts import with_tools
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import CallNode, Message, Termination, Turn
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.golden_tables import Golden, table
from tests.scripted_runs import ScriptedRun, complaint, in_process
from tests.speedrunner.run_samples import trajectory

pytestmark = pytest.mark.process


def test_it_prints_what_was_said_called_and_seen_and_what_it_came_to(learnt: ScriptedRun) -> None:
    done = in_process("show", str(learnt.dir), "test/2/0")
    assert (done.returncode, done.stderr) == (0, "")
    (played,) = (each for each in learnt.data.evaluations(2) if each.episode == "test/0002/0000")
    (turn,) = played.turns
    text, usage = done.stdout, turn.usage
    for part in (*(message.content for message in turn.messages), turn.text):
        assert part in text
    tools = text.partition("\n\nTools:\n")[2].partition("\n--- user\n")[0].splitlines()
    assert [json.loads(line)["function"]["name"] for line in tools] == ["walk", "look", "to_flag"]
    assert text.startswith("test/0002/0000: policy v0001, success, score 1, 1 LLM calls, 1 actions, ")
    seen = "You are at field 0. The flag is at field 7."
    assert f"[1]\n  to_flag()\n    look() -> {seen}\n    walk(steps=7) -> " in text
    assert text.count(f"tokens: {usage.uncached} uncached, {usage.cached} cached, 0 reasoning, ") == 2
    assert 'outcome: {"position":7}\ntiny-random: no reasoning' in text


def test_of_a_sleep_it_prints_what_its_agents_read_and_wrote(learnt: ScriptedRun) -> None:
    done = in_process("show", str(learnt.dir), "sleep/1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--- system\nYou maintain a library of skills" in done.stdout
    assert "=== inducer: submitted\nsleep 1: write to_flag\n" in done.stdout


def test_thoughts_errors_and_faults_are_shown_and_steer_no_terminal(tmp_path: Path, golden: Golden) -> None:
    turns = [
        Turn(
            messages=[Message("user", "go\rstop")],
            text="\x1b[2Jleft",
            reasoning="Or\x07 right?",
            usage=Usage(9, 4, 3, 1),
            seconds=0.0,
            call=ToolCall("go", {}),
            executed=CallNode("go", "skill", {}, error="boom \x9b31m"),
        ),
        Turn(messages=[], text="hm", usage=Usage(), seconds=0.0, error="no call", role="critic"),
    ]
    fault = trajectory(
        turns=turns, termination=Termination.ENGINE_ERROR, outcome=None, error="gone\nat \x1b]0;x"
    )
    waits = Turn([], "", Usage(9, 0, 3), 0.1, executed=CallNode("wait", "primitive", {}, actions=1))
    end = {"termination": Termination.ACTION_LIMIT, "outcome": Outcome(0.5, False, {})}
    looping = trajectory("train/0001", turns=[waits] * 4, **end)
    for name, played in {
        "empty": [],
        "faulty": [fault],
        "looping": [trajectory("train/0000"), looping],
    }.items():
        with RunDirectory.open_for_writing(tmp_path / name) as run:
            run.write_config("run: {}\n")
            for each in played:
                run.append_trajectory("train", 0, each)
                run.append_episode(summarize_episode(each, "train", 0))
    shown = {}
    for words in ("empty", "looping", "looping train/1", "faulty train/0"):
        name, *episode = words.split()
        done = in_process("show", str(tmp_path / name), *episode)
        shown[f"speedrunner show {words}"] = done.stdout + done.stderr
    assert not any(ord(char) < 32 and char != "\n" for text in shown.values() for char in text)
    golden("shown_episodes.txt", table(shown, HERE=tmp_path))


def test_the_system_message_is_shown_as_a_model_without_thinking_and_tools_in_its_template_read_it(
    learnt: ScriptedRun,
) -> None:
    run = load(learnt.dir)
    process = run.processes[-1]
    role = msgspec.structs.replace(process.model.roles.actor, thinking_tokens=24)
    actor = msgspec.structs.replace(
        process.model, tools_in="system", thinking="none", roles=Roles(role, role)
    )
    run.processes[-1] = msgspec.structs.replace(process, model=actor)
    (turn,) = run.trajectory("test/0002/0000").turns
    (tools,) = (row.tools for row in run.tools if (row.role, row.policy) == ("actor", 1))
    shown = with_tools(turn, "actor", 1, run).messages
    read = ChatTokenizer(str(actor.path)).template.first_messages(
        plain_messages(turn.messages), tools, FORMATS["qwen3_json"].form, 24
    )
    assert plain_messages(shown) == read
    assert "in at most 24 tokens" in shown[0].content


DEEP = f"X = {'-' * 5000}1"


def test_a_stored_version_that_breaks_the_rules_is_one_error(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    module = run / "policies" / "v0002" / "skills.py"
    source = module.read_text()
    assert "import re" in source
    module.write_text(source.replace("import re", DEEP))
    failed = in_process("show", str(run), "library/2")
    assert complaint(failed).startswith(f"{run}: policy v0002 is no valid library: ")
    assert "nested too deeply" in failed.stderr
    assert failed.stdout == ""
