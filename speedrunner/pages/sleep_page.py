"""A sleep as a notebook: cells of code with their outputs, and edits as diffs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from speedrunner.agents.reading import result_text, summarize_sleep
from speedrunner.library.definition import Definition
from speedrunner.library.library import Library
from speedrunner.pages.edit_diffs import ShownEdit, match_turns, show_edits
from speedrunner.pages.named_episodes import Evidence, find_evidence, sleep_turns
from speedrunner.pages.pages import TURNS, Context, NotFound, heading, page_part
from speedrunner.pages.turns import write_call_without
from speedrunner.store.carried import carried_runs
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
        rest: what the reply has in addition to the output, such as the remaining budget.
        edits: the edits that the call requested. Their diffs are shown instead of `code`.
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
    edits: list[ShownEdit]
    turn: Turn


def sleep_page(run: RunData, record: SleepRecord, page: int) -> Context:
    """Return a sleep's summary, edits and some of its cells. Raises `NotFound`."""
    edits = show_edits(_definitions_before(run, record), record.edits)
    matched = match_turns(sleep_turns(record), record.edits)
    cells = list(list_cells(record, {turn: [edits[n] for n in those] for turn, those in matched.items()}))
    cell_of = {place: turn + 1 for turn, those in matched.items() for place in those}
    return {
        **heading(run),
        "record": record,
        "summary": read_summary(record),
        "numbers": {each.sleep for each in run.sleeps},
        "versions": run.policies.versions(),
        "edits": [(edit, cell_of.get(place)) for place, edit in enumerate(edits)],
        "carries": bool(carried_runs(run)),
        "evidence": sleep_evidence(run, record),
        **page_part(cells, page, TURNS),
    }


def read_summary(record: SleepRecord) -> str:
    """Return what a sleep's agent said about its work when it finished; empty if it did not."""
    return str(summarize_sleep(msgspec.to_builtins(record))["summary"])


def find_sleep(run: RunData, number: int) -> SleepRecord:
    """Return a finished sleep. Raises `NotFound`."""
    try:
        return run.sleep(number)
    except RunDirectoryError as error:
        raise NotFound(str(error)) from error


def sleep_evidence(run: RunData, record: SleepRecord) -> Evidence:
    """Return what the record of a sleep says about the training episodes that its agents read."""
    known = {row.episode for row in run.rows if row.phase == "train" and row.policy < record.sleep}
    return find_evidence(record, known)


def list_cells(record: SleepRecord, edits: Mapping[int, list[ShownEdit]]) -> Iterator[Cell]:
    """Yield the turns of a sleep as cells, in which nothing occurs twice.

    Args:
        edits: the edits that each turn requested, by the turn's position.
    """
    number = 0
    for agent in record.agents:
        replies = _replies(agent.turns)
        open_conversations: set[int] = set()
        for place, turn in enumerate(agent.turns):
            is_first = turn.conversation not in open_conversations
            open_conversations.add(turn.conversation)
            yield _cell(
                turn,
                number=number + 1,
                agent="" if place else agent.role,
                prompt=turn.messages if is_first else [],
                reply=replies[place],
                edits=edits.get(number, []),
            )
            number += 1


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


def _cell(
    turn: Turn, *, number: int, agent: str, prompt: list[Message], reply: str, edits: list[ShownEdit]
) -> Cell:
    call, ran = turn.call, turn.executed
    output, failed = turn.error or "", turn.error is not None
    if ran is not None:
        output, failed = (result_text(ran.result), False) if ran.error is None else (ran.error, True)
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
        code={} if edits else texts,
        output=output,
        failed=failed,
        rest=reply.removeprefix(f"Error: {output}" if failed else output).lstrip(". \n"),
        edits=edits,
        turn=turn,
    )
