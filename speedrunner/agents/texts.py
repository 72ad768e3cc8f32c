"""Episodes and sleeps as text for agents and people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from serving.tokens.chat_template import system_sections
from serving.tokens.formats import FORMATS
from serving.usage import Usage
from speedrunner.agents.failure import describe_failure
from speedrunner.agents.reading import headline, summary_lines, trajectory_lines, turn_lines
from speedrunner.store.records import Message, SleepRecord, Trajectory, Turn
from speedrunner.store.run_data import RunData


def trajectory_text(trajectory: Trajectory) -> str:
    """Return an episode as agents read it: its headline, then all thoughts, calls and replies."""
    return "\n".join(trajectory_lines(msgspec.to_builtins(trajectory)))


def short_headline(trajectory: Trajectory) -> str:
    """Return an episode's headline for people, without the outcome's `detail`."""
    plain = msgspec.to_builtins(trajectory)
    if trajectory.outcome is not None:
        del plain["outcome"]["detail"]
    return headline(plain)


def with_tools(turn: Turn, role: str, policy: int, run: RunData) -> Turn:
    """Return a turn whose system message ends with the tools and the sentence on plain-text reasoning.

    The turn stays as it is if the run did not record its tools exactly once. Tools that the chat template
    writes in its own form are shown as JSON.
    """
    lists = [row.tools for row in run.tools if (row.role, row.policy) == (role, policy)]
    if len(lists) != 1 or not turn.messages or turn.messages[0].role != "system":
        return turn
    process = run.processes[-1]
    model_config = process.actor if role == "actor" else process.inducer
    name = model_config.tool_format if model_config.tools_in == "system" else None
    form = FORMATS[name].form if name else ""
    sections = system_sections(lists[0] if name else [], form, model_config.text_reasoning(role))
    if not name:
        shown = [msgspec.json.encode(tool.openai).decode() for tool in lists[0]]
        sections.append("\n".join(["Tools:", *shown]))
    system, *others = turn.messages
    system = Message("system", "\n\n".join([system.content, *sections]))
    return msgspec.structs.replace(turn, messages=[system, *others])


def message_lines(turn: Turn) -> Iterator[str]:
    """Yield the messages that the agent got before it answered, verbatim."""
    for message in turn.messages:
        yield f"--- {message.role}"
        yield from message.content.split("\n")


def answer_lines(turn: Turn, role: str = "") -> Iterator[str]:
    """Yield the agent's answer, verbatim, with its time and tokens. A sleep's turns lack the `role`."""
    number = f" {turn.conversation}" if turn.conversation else ""
    yield f"--- {role or turn.role}{number} ({turn.seconds:.2f} s; tokens: {_tokens(turn.usage)})"
    yield from turn.text.split("\n")


def full_lines(trajectory: Trajectory, run: RunData) -> Iterator[str]:
    """Yield a whole episode for people: all messages, thoughts, calls and replies, the tokens and the
    termination.
    """
    task = trajectory.task
    yield short_headline(trajectory)
    yield f"task {task.name} {task.index} of {task.env}, attempt {trajectory.attempt}"
    yield from _turn_texts(with_tools(turn, turn.role, trajectory.policy, run) for turn in trajectory.turns)
    yield f"=== {short_headline(trajectory)}"
    yield f"took {trajectory.seconds:.1f} s; tokens: {_tokens(trajectory.usage)}"
    if failure := describe_failure(trajectory):
        yield f"why it failed: {failure}"
    if trajectory.outcome is not None:
        yield f"outcome: {msgspec.json.encode(trajectory.outcome.detail).decode()}"
    yield from (trajectory.error or "").splitlines()


def sleep_lines(record: SleepRecord, run: RunData) -> Iterator[str]:
    """Yield a whole sleep for people: all messages and answers of its agents, and the resulting edits."""
    for agent in record.agents:
        turns = (with_tools(turn, agent.role, record.sleep - 1, run) for turn in agent.turns)
        yield from _turn_texts(turns, agent.role)
        yield f"=== {agent.role}: {agent.termination}"
    yield from summary_lines(msgspec.to_builtins(record))


def _turn_texts(turns: Iterable[Turn], role: str = "") -> Iterator[str]:
    for number, turn in enumerate(turns, start=1):
        called = turn_lines(number, msgspec.to_builtins(turn))
        yield from (*message_lines(turn), *answer_lines(turn, role), *called)


def _tokens(usage: Usage) -> str:
    """Return the number of tokens by class."""
    prompt = f"{usage.uncached} uncached, {usage.cached} cached"
    return f"{prompt}, {usage.reasoning} reasoning, {usage.action} action"
