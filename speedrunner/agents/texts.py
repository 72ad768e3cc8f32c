"""Texts for agents and people: prompts from templates, and trajectories with their indented call trees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from serving.usage import Usage
from speedrunner.store.records import CallNode, Trajectory, Turn


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package, "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(package: str, name: str, **variables: Any) -> str:
    """Fill in a prompt, without leading or trailing blank lines.

    Args:
        package: whose folder `prompts` holds it.
        name: of its file, without `.jinja`.
        variables: of the template; one that is missing is an error.
    """
    return _environment(package).get_template(f"{name}.jinja").render(**variables).strip()


def call_lines(node: CallNode, indent: int = 0) -> Iterator[str]:
    """A call and the calls below it, one line each, their results indented under them."""
    pad = "  " * indent
    arguments = ", ".join(f"{name}={value!r}" for name, value in node.arguments.items())
    yield f"{pad}{node.name}({arguments})"
    for child in node.calls:
        yield from call_lines(child, indent + 1)
    if node.omitted:
        yield f"{pad}  [{node.omitted} further calls were not recorded]"
    came = f"error: {node.error}" if node.error is not None else f"-> {node.result}"
    yield from (f"{pad}  {line}" for line in came.splitlines())


def turn_lines(number: int, turn: Turn) -> Iterator[str]:
    """One turn: what the agent thought, what it called, what came of it."""
    yield f"[{number}]"
    if turn.reasoning:
        yield from (f"  thought: {line}" for line in turn.reasoning.splitlines())
    if turn.executed is not None:
        yield from call_lines(turn.executed, 1)
    elif turn.call is not None:
        yield f"  {turn.call.name}({turn.call.arguments}) was not completed"
    else:
        yield f"  no valid call: {turn.error}; written: {turn.text!r}"


def trajectory_lines(trajectory: Trajectory) -> Iterator[str]:
    """A whole episode: its task as the actor was shown it, its turns, its end."""
    yield headline(trajectory)
    if trajectory.turns:
        user = [message.content for message in trajectory.turns[0].messages if message.role == "user"]
        yield from "\n".join(user).splitlines()
    for number, turn in enumerate(trajectory.turns, start=1):
        yield from turn_lines(number, turn)


def headline(trajectory: Trajectory) -> str:
    """One line on an episode: key, policy, end, score, calls."""
    outcome = trajectory.outcome
    score = "unscored" if outcome is None else f"score {outcome.score:g}"
    return (
        f"{trajectory.episode}: policy v{trajectory.policy:04d}, {trajectory.ending}, {score},"
        f" {len(trajectory.turns)} LLM calls"
    )


def told_lines(turn: Turn) -> Iterator[str]:
    """What the agent was told before it answered, as it was told."""
    for message in turn.messages:
        yield f"--- {message.role}"
        yield from message.content.split("\n")


def answer_lines(turn: Turn) -> Iterator[str]:
    """What it wrote then, verbatim, how long that took, and its tokens."""
    number = f" {turn.conversation}" if turn.conversation else ""
    yield f"--- {turn.role}{number} ({turn.seconds:.2f} s; tokens: {_tokens(turn.usage)})"
    yield from turn.text.split("\n")


def whole_lines(trajectory: Trajectory) -> Iterator[str]:
    """A whole episode, for people: all that was said, thought, called and seen, its tokens and its end."""
    task = trajectory.task
    yield headline(trajectory)
    yield f"task {task.name} {task.index} of {task.env}, attempt {trajectory.attempt}"
    for number, turn in enumerate(trajectory.turns, start=1):
        yield from (*told_lines(turn), *answer_lines(turn), *turn_lines(number, turn))
    yield f"=== {headline(trajectory)}, {trajectory.seconds:.1f} s"
    yield f"tokens: {_tokens(trajectory.usage)}"
    if trajectory.outcome is not None:
        yield f"outcome: {msgspec.json.encode(trajectory.outcome.detail).decode()}"
    yield from (trajectory.error or "").splitlines()


def _tokens(usage: Usage) -> str:
    """By class."""
    prompt = f"{usage.uncached} uncached, {usage.cached} cached"
    return f"{prompt}, {usage.reasoning} reasoning, {usage.action} action"
