"""A library over time, its versions and its skills, and a sleep as a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.site import Site
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    Message,
    Policy,
    SleepRecord,
    Termination,
    Turn,
)
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import Elements
from tests.speedrunner.pages.runs import CONFIG, append
from tests.speedrunner.results.small_runs import learnt
from tests.speedrunner.run_samples import trajectory


def shown(tmp_path: Path, address: str) -> str:
    answer = Site(tmp_path).answer(f"runs/run/{address}")
    assert answer.status == 200, answer.content
    return answer.content.decode()


def test_a_version_shows_what_its_sleep_changed(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    assert {"change-home", "change-_step"} <= set(Elements(shown(tmp_path, "library/0002.html")).ids)
    assert '<a href="library/0002.html">2</a>' in shown(tmp_path, "skills.html")


def test_skills_have_their_calls_failures_and_last_change(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    text = shown(tmp_path, "skills.html")

    def cells(name: str) -> list[str]:
        row = text.partition(f">{name}</a>")[2].partition("</tr>")[0]
        return re.findall("<td[^>]*>(.*?)</td>", row)

    home, step = cells("home"), cells("_step")
    assert (home[:3], home[-2:]) == (["actor", "6", "0"], ["2", "–"])  # edited by sleep 2
    assert (step[0], step[-2:]) == ("skills", ["1", "2"])  # deleted by it


LEFT = "(14 calls and 900 tokens left)"
SOURCE = 'def go() -> str:\n    """Go."""\n    return go_forward()'


def turn(
    tool: str, result: str | None, /, *messages: Message, error: str | None = None, **arguments: object
) -> Turn:
    return Turn(
        [*messages],
        '<tool_call>{"name": "?"}</tool_call>',
        Usage(100, 60, 20, 5),
        0.5,
        reasoning=f"I call {tool}.",
        call=ToolCall(tool, dict(arguments)),
        executed=CallNode(tool, "tool", dict(arguments), result, error),
    )


@pytest.fixture
def record() -> SleepRecord:
    prompt = Message("system", "rules"), Message("user", "train/0000: success")
    counted = Message("tool", f"10 episodes\n\n{LEFT}")
    rejected = Message("user", f"Error: no call. Answer with exactly one tool call.\n\n{LEFT}")
    added = Message("tool", f"go was added.\n\n{LEFT}")
    refused = Message("tool", f"Error: it is used\n\n{LEFT}")
    turns = [
        turn("execute_code", "10 episodes", *prompt, code="print(len(load_trajectories()))"),
        Turn([counted], "I am not sure.", Usage(), 0.1, error="no call"),
        turn("write_skill", "go was added.", rejected, source=SOURCE),
        turn("delete_skill", None, added, error="it is used", name="go"),
        turn("finish", "The library was stored.", refused, summary="Done."),
    ]
    edits = [Edit("write", "go", source=SOURCE), Edit("delete", "go", "it is used")]
    agents = [AgentRecord("inducer", turns, Termination.SUBMITTED)]
    return SleepRecord(sleep=1, rollouts=1, attempt=1, agents=agents, edits=edits, seconds=3.0)


@pytest.fixture
def slept(tmp_path: Path, record: SleepRecord) -> Path:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        run.write_policy(Policy(version=0))
        append(run, trajectory())
        run.write_sleep(record)
    return tmp_path


def test_a_turn_has_code_and_output(slept: Path) -> None:
    text = shown(slept, "sleep/0001/1.html")
    assert re.findall("<h3[^>]*><a[^>]*>Turn .</a> <code>(.*?)</code>", text) == [
        "execute_code(code=…)", "write_skill(source=…)", "delete_skill(name=&#39;go&#39;)",
        "finish(summary=&#39;Done.&#39;)",
    ]  # fmt: skip
    assert re.findall('class="gutter">(.*?)<', text) == [
        "code",
        "Output",
        "Error",
        "source",
        "Output",
        "Error",
        "Output",
    ]
    assert re.findall("<summary>(.*?) prompt", text) == ["System", "User"]


def test_nothing_but_reasons_of_edits_occurs_twice_on_the_page(slept: Path) -> None:
    text = Elements(shown(slept, "sleep/0001/1.html")).text
    for once in (
        "10 episodes",
        "go was added.",
        "I am not sure.",
        "The library was stored.",
        "return go_forward()",
    ):
        assert text.count(once) == 1, once
    assert text.count("it is used") == 2


def test_edits_are_listed_with_verdicts(slept: Path) -> None:
    text = shown(slept, "sleep/0001/1.html")
    assert '<span class="badge good">accepted</span> <code>write go</code>' in text
    assert '<span class="badge bad">refused</span> <code>delete go</code>' in text


def test_edits_without_a_conversation_are_shown_in_the_list(slept: Path) -> None:
    record = SleepRecord(
        sleep=2, rollouts=1, attempt=1, agents=[], seconds=0.1, edits=[Edit("write", "go", source=SOURCE)]
    )
    with RunDirectory.open_for_writing(slept / "run") as run:
        run.write_sleep(record)
    text = Elements(shown(slept, "sleep/0002/1.html")).text
    assert "No agent took part in this sleep." in text
    assert "accepted write go" in " ".join(text.split())
