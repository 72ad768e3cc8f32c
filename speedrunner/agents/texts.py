"""Episodes and sleeps as text for agents and people, and why an episode failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec

from serving.tokens.chat_template import system_sections
from serving.tokens.formats import FORMATS
from serving.usage import Usage
from speedrunner.agents.reading import headline, summary_lines, trajectory_lines, turn_lines, write_call
from speedrunner.plain.console import shorten
from speedrunner.store.episode_summary import list_exchanges
from speedrunner.store.records import Message, SleepRecord, Trajectory, Turn
from speedrunner.store.run_data import RunData

CALL_CHARS, ERROR_CHARS = 80, 160
"""Most characters of a call and of an error in the line."""

ROUNDS, PERIODS, SHARE = 3, range(1, 5), 0.1
"""A loop repeats one to four calls at least three times, with the same results, in a tenth of the turns."""


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
    model_config = run.processes[-1].model
    name = model_config.tool_format if model_config.tools_in == "system" else None
    form = FORMATS[name].form if name else ""
    reasoning_tokens = 0 if model_config.thinking != "none" else model_config.role(role).thinking_tokens
    sections = system_sections(lists[0] if name else [], form, reasoning_tokens)
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


def describe_failure(trajectory: Trajectory) -> str:
    """Return why an episode failed in one line: how it ended, then the most likely cause.

    The cause is a loop of equal calls at the end, or else the first error. "" if the episode succeeded.
    """
    outcome, ended = trajectory.outcome, trajectory.termination
    if ended.is_fault:
        return f"Infrastructure error: {_shorten(trajectory.fault, ERROR_CHARS)}"
    if outcome is not None and outcome.success:
        return ""
    actions = sum(turn.executed.actions for turn in trajectory.turns if turn.executed is not None)
    end = f"Ended by {ended} after {len(trajectory.turns)} LLM calls and {actions} actions"
    cause = describe_loop(trajectory.turns)
    if not cause and (index := find_first_error(trajectory.turns)) is not None:
        turn = trajectory.turns[index]
        error = _shorten(_error_of(turn), ERROR_CHARS)
        cause = f"first error in turn {index + 1}: {_call_of(turn)}: {error}"
    return "; ".join(filter(None, (end, cause)))


def find_first_error(turns: list[Turn]) -> int | None:
    """Return the index of the first turn without a valid call or with a failed one; `None`: no error. The end
    of the episode, which stops a call, is none."""
    return next((index for index, turn in enumerate(turns) if _error_of(turn)), None)


def describe_skill_calls(turns: list[Turn]) -> str:
    """Return how often the actor called each skill, and how many of these calls failed; "" without any."""
    made = [turn.executed for turn in turns if turn.executed is not None and turn.executed.kind == "skill"]
    counts = []
    for name in dict.fromkeys(call.name for call in made):
        failures = [call.failed for call in made if call.name == name]
        counts.append(f"{name} x{len(failures)}" + f" ({sum(failures)} failed)" * any(failures))
    return f"skills: {', '.join(counts)}" if counts else ""


def describe_loop(turns: list[Turn]) -> str:
    """Return the loop of equal calls that an episode ends with, "" if there is none."""
    latest_first = list_exchanges(turns)[::-1]
    for period in PERIODS:
        pairs = zip(latest_first, latest_first[period:], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].is_same(pair[1]), pairs))
        rounds = (same + period) // period
        if rounds >= ROUNDS and rounds * period >= SHARE * len(turns):
            calls = ", ".join(map(_call_of, turns[-period:]))
            return f"repeated {calls} {rounds} times with the same results, until the end"
    return ""


def _call_of(turn: Turn) -> str:
    node = turn.executed or turn.call
    return "no valid call" if node is None else _shorten(write_call(node.name, node.arguments), CALL_CHARS)


def _error_of(turn: Turn) -> str:
    executed = turn.executed
    return turn.error or (executed.error if executed is not None and executed.failed else None) or ""


def _shorten(text: str, limit: int) -> str:
    """Return the first line of a text with single spaces, cut to `limit` characters."""
    return shorten(" ".join(text.strip().partition("\n")[0].split()), limit)
