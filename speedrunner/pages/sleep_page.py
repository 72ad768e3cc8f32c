"""A sleep as a notebook: edits as diffs, and cells of code with their outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from speedrunner.agents.reading import summarize_sleep
from speedrunner.library.definition import Definition
from speedrunner.library.library import Library
from speedrunner.pages.edit_diffs import show_edits
from speedrunner.pages.shown_calls import describe_result, write_call_without
from speedrunner.pages.view_parts import TURNS, Context, NotFound, heading, page_part
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Message, SleepRecord, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

CODE = ("code", "source")
"""Arguments that are shown as code."""

EPISODE = re.compile(r"(?<![\w/])train/\d{4,}(?!\d)")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of an agent.

    Attributes:
        number: among the turns of all agents, from 1.
        agent: the agent's role, at its first turn; empty otherwise.
        prompt: the messages that begin a conversation; replies to calls are outputs.
        said: text next to the call.
        call: the call in Python syntax, without its code; empty without a valid call.
        code: multi-line texts among its arguments, by parameter.
        output: the result or the error.
        rest: what the reply has in addition to the output, such as the remaining budget.
    """

    number: int
    agent: str
    prompt: list[Message]
    said: str
    call: str
    code: dict[str, str]
    output: str
    failed: bool
    rest: str
    turn: Turn


def sleep_page(run: RunData, number: int, page: int) -> Context:
    """Return a sleep's summary, edits and some of its cells. Raises `NotFound`."""
    try:
        record = run.sleep(number)
    except RunDirectoryError as error:
        raise NotFound(str(error)) from error
    turns = [turn for agent in record.agents for turn in agent.turns]
    known = {row.episode for row in run.rows if row.phase == "train" and row.policy < record.sleep}
    return {
        **heading(run),
        "record": record,
        "summary": str(summarize_sleep(msgspec.to_builtins(record))["summary"]),
        "numbers": {each.sleep for each in run.sleeps},
        "versions": run.policies.versions(),
        "edits": show_edits(_definitions_before(run, record), record.edits),
        "read": {key: those for key, those in find_episodes(turns).items() if key in known},
        **page_part(list_cells(record), page, TURNS),
    }


def find_episodes(turns: Sequence[Turn]) -> dict[str, list[int]]:
    """Return the training episodes that calls and their results name, in order, with the turns, from 1."""
    found: dict[str, list[int]] = {}
    for number, turn in enumerate(turns, start=1):
        texts = [] if turn.call is None else list(turn.call.arguments.values())
        texts += [] if turn.executed is None else [describe_result(turn.executed)]
        for key in {key for text in texts if isinstance(text, str) for key in EPISODE.findall(text)}:
            found.setdefault(key, []).append(number)
    return dict(sorted(found.items()))


def list_cells(record: SleepRecord) -> list[Cell]:
    """Return the turns of a sleep as cells, in which nothing occurs twice."""
    cells: list[Cell] = []
    for agent in record.agents:
        replies = _replies(agent.turns)
        open_conversations: set[int] = set()
        for place, turn in enumerate(agent.turns):
            is_first = turn.conversation not in open_conversations
            open_conversations.add(turn.conversation)
            cells.append(
                _cell(
                    turn,
                    number=len(cells) + 1,
                    agent="" if place else agent.role,
                    prompt=turn.messages if is_first else [],
                    reply=replies[place],
                )
            )
    return cells


def _definitions_before(run: RunData, record: SleepRecord) -> tuple[Definition, ...]:
    """Return the definitions of the library that a sleep edited; none if it is no longer stored."""
    if record.sleep - 1 not in run.policies.versions():
        return ()
    try:
        return Library(()).of(run.policies.load(record.sleep - 1)).definitions
    except InvalidPolicy:
        return ()


def _replies(turns: Sequence[Turn]) -> list[str]:
    """Return the reply after each turn, which the record has with the next turn of its conversation."""
    replies: list[str] = []
    following: dict[int, str] = {}
    for turn in reversed(turns):
        replies.append(following.get(turn.conversation, ""))
        following[turn.conversation] = "\n".join(each.content for each in turn.messages)
    return replies[::-1]


def _cell(turn: Turn, *, number: int, agent: str, prompt: list[Message], reply: str) -> Cell:
    call, ran = turn.call, turn.executed
    output, failed = turn.error or "", turn.error is not None
    if ran is not None:
        output, failed = describe_result(ran), ran.error is not None
    elif call is not None:
        output, failed = f"{call.name} was not completed", True
    given = {} if call is None else call.arguments
    texts = {
        name: text for name, text in given.items() if isinstance(text, str) and (name in CODE or "\n" in text)
    }
    said = turn.text.strip()
    return Cell(
        number=number,
        agent=agent,
        prompt=prompt,
        said=said if call is None or said[:1] not in ("<", "{", "[") else "",
        call="" if call is None else write_call_without(texts, call.name, given),
        code=texts,
        output=output,
        failed=failed,
        rest=reply.removeprefix(f"Error: {output}" if failed else output).lstrip(". \n"),
        turn=turn,
    )
