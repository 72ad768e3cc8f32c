"""A sleep as a notebook: edits as diffs, and cells of code with their outputs."""

from __future__ import annotations

import msgspec

from speedrunner.agents.reading import summarize_sleep
from speedrunner.library.library import Library
from speedrunner.pages.html_parts import TURNS, Context, NotFound, heading, page_part
from speedrunner.pages.shown_code import describe_result, show_edits, write_call_without
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Message, SleepRecord, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

CODE = ("code", "source")
"""Arguments that are shown as code."""


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
    """

    number: int
    agent: str
    prompt: list[Message]
    said: str
    call: str
    code: dict[str, str]
    output: str
    failed: bool
    turn: Turn


def sleep_page(run: RunData, number: int, page: int) -> Context:
    """Return a sleep's summary, edits and some of its cells. Raises `NotFound`."""
    try:
        record = run.sleep(number)
    except RunDirectoryError as error:
        raise NotFound(str(error)) from error
    return {
        **heading(run),
        "record": record,
        "summary": str(summarize_sleep(msgspec.to_builtins(record))["summary"]),
        "sleeps": {sleep.sleep for sleep in run.sleeps},
        "numbers": _list_numbers(record),
        "versions": run.policies.versions(),
        "edits": show_edits(_library_before(run, record), record.edits),
        **page_part(list_cells(record), page, TURNS),
    }


def _list_numbers(record: SleepRecord) -> list[tuple[str, str, str]]:
    """Return name, value and note of a sleep's headline numbers."""
    roles = ", ".join(dict.fromkeys(agent.role for agent in record.agents))
    usage, prefix = record.usage, record.prefix
    numbers = [
        ("Edits accepted", f"{record.accepted}", f"{record.refused} refused"),
        ("LLM calls", f"{len(record.turns)}", roles or "no agent"),
        ("Output tokens", f"{usage.completion:,}", f"{usage.prompt:,} prompt tokens"),
        ("Seconds", f"{record.seconds:.1f}", f"after {record.rollouts} new rollouts"),
    ]
    if prefix:
        kept = f"tokens; before {prefix.before:,}; the first {prefix.common:,} stay cached"
        numbers.append(("Shared prompt prefix", f"{prefix.after:,}", kept))
    return numbers


def list_cells(record: SleepRecord) -> list[Cell]:
    """Return the turns of a sleep as cells, in which nothing occurs twice."""
    cells: list[Cell] = []
    for agent in record.agents:
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
                )
            )
    return cells


def _library_before(run: RunData, record: SleepRecord) -> Library | None:
    """Return the library that a sleep edited; `None` if it is no longer stored."""
    try:
        return Library(()).of(run.policies.load(record.sleep - 1))
    except InvalidPolicy:
        return None


def _cell(turn: Turn, *, number: int, agent: str, prompt: list[Message]) -> Cell:
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
        turn=turn,
    )
