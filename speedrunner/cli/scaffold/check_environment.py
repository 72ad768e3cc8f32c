"""Check in a test that an environment keeps the promises of `envs.TextEnv`, by playing it at random."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from envs import EpisodeOver, InvalidPrimitiveCall, Task, TextEnv, make, splits
from envs.class_registry import in_one_line, place
from envs.env_registry import REGISTRY
from serving.tokens.tools import Schema, ToolSpec

Event = dict[str, Any]
"""A reset or a call of a play: its text, and the state after it."""


def check_environment(name: str, options: Mapping[str, Any] | None = None, *, calls: int = 150) -> list[str]:
    """Check that an environment keeps the promises of `TextEnv`.

    Two training tasks are played with random calls. A new instance repeats them in another order, and must
    get the same texts (`speedrunner verify` repeats a run's in another process). In a test:

        assert check_environment("my_env:MyEnv", {"width": 2}) == []

    Args:
        name, options: the environment, as for `envs.make`.
        calls: primitive calls of each play. To check the end of an episode, it must exceed the episode's
            length.

    Returns:
        One line for each broken promise.

    Raises `EnvironmentFault`: there is no such environment or option, or it has no split.
    """
    options = dict(options or {})
    split = splits(name, **options)
    listed = split.train + split.test
    if not split.train or not split.test or len(set(listed)) != len(listed):
        return ["splits: training or held-out tasks are missing, or a task occurs twice"]
    tasks = [split.train[0], split.train[-1]]
    problems = list[str]()
    try:
        plays = _play_all(name, options, calls, tasks, problems)
        repeated = _play_all(name, options, calls, tasks[::-1], problems)[::-1]
    except Exception as error:  # an environment under test may raise anything
        problems.append(f"raised {in_one_line(error)} ({place(error, REGISTRY.find(name))})")
    if problems:
        return [*dict.fromkeys(problems)]
    for task, play, again in zip(tasks, plays, repeated, strict=True):
        if play != again:
            alike = list(takewhile(lambda events: events[0] == events[1], zip(play, again, strict=False)))
            where = f"after {len(alike) - 1} equal calls" if alike else "in its opening"
            problems.append(f"determinism: {task} differs when it is played again {where}")
    return problems


def _play_all(
    name: str, options: Mapping[str, Any], calls: int, tasks: Sequence[Task], problems: list[str]
) -> list[list[Event]]:
    with closing(make(name, **options)) as env:
        return [list(_play(env, task, calls, problems)) for task in tasks]


def _play(env: TextEnv, task: Task, calls: int, problems: list[str]) -> Iterator[Event]:
    """Play at random, and note broken promises. Texts in calls are words that the world has used."""
    rng = random.Random(0)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    state = _state(env, problems)
    yield {"opening": asdict(opening), "state": state}
    for name in (*(primitive.name for primitive in env.primitives), "no_such_primitive"):
        with suppress(InvalidPrimitiveCall):
            env.call(name, no_such_parameter=1)
            problems.append(f"call: must raise InvalidPrimitiveCall for {name}(no_such_parameter=1)")
    for _ in range(calls):
        primitive = rng.choice(env.primitives)
        schema = ToolSpec.from_signature(primitive.name, primitive.signature, primitive.doc).parameters
        arguments = invent_value(schema, words, rng)
        if env.done:
            with suppress(EpisodeOver):
                env.call(primitive.name, **arguments)
                problems.append("call: must raise EpisodeOver after the end")
            return
        before, text = state, env.call(primitive.name, **arguments)
        state = _state(env, problems)
        yield {"call": [primitive.name, arguments], "texts": [text, env.free_observation()], "state": state}
        words += str(text or "").split()
        if not isinstance(text, primitive.signature.return_annotation or type(None)):
            problems.append(f"call: {primitive.name} returned {type(text).__name__} against its signature")
        if state != before and not primitive.advances:
            problems.append(f"call: {primitive.name} changed the world although it does not advance")


def _state(env: TextEnv, problems: list[str]) -> Event:
    outcome = env.outcome()
    if not isinstance(outcome.score, int | float) or not 0 <= outcome.score <= 1:
        problems.append(f"outcome: score must be a number in [0, 1], not {outcome.score!r}")
    state = {"done": env.done, "outcome": asdict(outcome), "snapshot": env.snapshot()}
    try:
        return dict(json.loads(json.dumps(state, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"outcome and snapshot must contain only plain JSON values: {error}") from None


def invent_value(schema: Schema, texts: Sequence[str], rng: random.Random) -> Any:
    """Invent a value for a schema, without what is optional. Strings are some of the given texts."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {name: invent_value(schema["properties"][name], texts, rng) for name in schema["required"]}
        case "array":
            return [invent_value(schema["items"], texts, rng)]
        case "string":
            return rng.choice(texts)
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            return rng.randrange(4)
    return rng.random()
