"""A sleep as a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.site import Site
from speedrunner.pages.sleep_page import list_cells
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
from tests.speedrunner.run_samples import trajectory

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
def site(tmp_path: Path, record: SleepRecord) -> Site:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        run.write_policy(Policy(version=0))
        append(run, trajectory())
        run.write_sleep(record)
    return Site(tmp_path / "run")


def shown(site: Site) -> str:
    found = site.answer("runs/run/sleep/0001/1.html")
    assert found.status == 200, found.content
    return found.content.decode()


def test_a_cell_has_code_and_output(record: SleepRecord) -> None:
    first, invalid, wrote, deleted, finished = list_cells(record)
    assert [each.role for each in first.prompt] == ["system", "user"]
    assert (first.agent, first.output) == ("inducer", "10 episodes")
    assert first.code == {"code": "print(len(load_trajectories()))"}
    assert (invalid.said, invalid.output, invalid.failed) == ("I am not sure.", "no call", True)
    assert (wrote.prompt, wrote.call, wrote.code) == ([], "write_skill(source=…)", {"source": SOURCE})
    assert (deleted.output, deleted.failed) == ("it is used", True)
    assert finished.call == "finish(summary='Done.')"


def test_nothing_but_code_and_reasons_of_edits_occurs_twice_on_the_page(site: Site) -> None:
    text = Elements(shown(site)).text
    for once in (
        "10 episodes",
        "go was added.",
        "I am not sure.",
        "The library was stored.",
        "+    return go_forward()",
    ):
        assert text.count(once) == 1, once
    assert text.count("return go_forward()") == 2
    assert text.count("it is used") == 2


def test_edits_are_listed_with_verdicts(site: Site) -> None:
    text = shown(site)
    assert '<span class="badge good">accepted</span> <code>write go</code>' in text
    assert '<span class="badge bad">refused</span> <code>delete go</code>' in text


def test_edits_without_a_conversation_are_shown_in_the_list(site: Site, tmp_path: Path) -> None:
    record = SleepRecord(
        sleep=2, rollouts=1, attempt=1, agents=[], seconds=0.1, edits=[Edit("write", "go", source=SOURCE)]
    )
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_sleep(record)
    text = Elements(site.answer("runs/run/sleep/0002/1.html").content.decode()).text
    assert "No agent took part in this sleep." in text
    assert "+    return go_forward()" in text
