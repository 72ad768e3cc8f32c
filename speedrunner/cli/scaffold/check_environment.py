"""Check in a test that an environment keeps the promises of `envs.TextEnv`, by playing it at random."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from envs import EpisodeOver, InvalidPrimitiveCall, Primitive, Split, Task, TextEnv, make, splits
from envs.class_registry import in_one_line, place
from envs.env_registry import REGISTRY
from serving.tokens.tools import Schema, ToolSpec

Event = dict[str, Any]
"""A reset (`opening`) or a call (`call`, `text`) of a play, with the state after it; see `_state`."""


def check_environment(name: str, options: Mapping[str, Any] | None = None, *, calls: int = 150) -> list[str]:
    """Check that an environment keeps the promises of `TextEnv`.

    Two training tasks are played with random calls. A new process repeats the calls with another order of
    tasks, and must get the same texts. In a test:

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
    env, split = make(name, **options), splits(name, **options)
    problems = list(_description_problems(env, split))
    if problems:
        return problems
    plays: dict[Task, list[Event]] = {}
    try:
        for task in (split.train[0], split.train[-1]):
            plays[task] = _play(env, task, calls, is_watched=True)
            problems += _play_problems(env, plays[task])
        env.reset(split.train[0])
        problems += _refusal_problems(env)
        env.close()
    except Exception as error:  # an environment under test may raise anything
        problems.append(f"raised {in_one_line(error)} ({place(error, type(env))})")
    return [*dict.fromkeys(problems)] or _replay_problems(name, options, calls, plays)


def _description_problems(env: TextEnv, split: Split) -> Iterator[str]:
    tasks = split.train + split.test
    names = [primitive.name for primitive in env.primitives]
    if not split.train or not split.test:
        yield "splits: training or held-out tasks are missing"
    if len(set(tasks)) != len(tasks):
        yield "splits: a task occurs twice, or in both training and held-out tasks"
    for env_name in sorted({task.env for task in tasks} - {env.name}):
        yield f"splits: Task.env is {env_name!r}, but the environment's name is {env.name!r}"
    if not names or len(set(names)) != len(names):
        yield "primitives: there are none, or a name occurs twice"


def _play(env: TextEnv, task: Task, calls: int, *, is_watched: bool) -> list[Event]:
    """Play at random. Texts in calls are words that the world has used.

    Args:
        is_watched: read the state after each call. Otherwise play as skills do, which read only the results
            of calls until these end.
    """
    rng = random.Random(0)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    events: list[Event] = [{"opening": asdict(opening)}]
    for _ in range(calls):
        if is_watched:
            events[-1] |= _state(env)
            if env.done:
                break
        primitive = rng.choice(env.primitives)
        arguments = _invent_arguments(primitive, words, rng)
        try:
            text = env.call(primitive.name, **arguments)
        except EpisodeOver:
            if is_watched:
                raise
            break
        events.append({"call": [primitive.name, arguments], "text": text})
        words += str(text or "").split()
    events[-1] |= _state(env)
    return events


def _state(env: TextEnv) -> Event:
    state = {
        "done": env.done,
        "outcome": asdict(env.outcome()),
        "snapshot": env.snapshot(),
        "free_observation": env.free_observation(),
    }
    try:
        return dict(json.loads(json.dumps(state, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"outcome and snapshot must contain only plain JSON values: {error}") from None


def _play_problems(env: TextEnv, play: Sequence[Event]) -> Iterator[str]:
    if not play[0]["opening"]["instruction"].strip() or play[0]["done"]:
        yield "reset: the opening has no instruction, or the episode is over at once"
    for event in play:
        score = event["outcome"]["score"]
        if not isinstance(score, (int, float)) or not 0 <= score <= 1:
            yield f"outcome: score must be a number in [0, 1], not {score!r}"
    primitives = {primitive.name: primitive for primitive in env.primitives}
    for before, event in itertools.pairwise(play):
        (name, _), text = event["call"], event["text"]
        if not isinstance(text, primitives[name].signature.return_annotation or type(None)):
            yield f"call: {name} returned {type(text).__name__} against its signature"
        changed = any(event[part] != before[part] for part in ("outcome", "snapshot"))
        if changed and not primitives[name].advances:
            yield f"call: {name} changed the world although it does not advance"
    if env.done:
        with suppress(EpisodeOver):
            env.call(env.primitives[0].name, **_invent_arguments(env.primitives[0]))
            yield "call: must raise EpisodeOver after the end"


def _refusal_problems(env: TextEnv) -> Iterator[str]:
    for primitive in env.primitives:
        with suppress(InvalidPrimitiveCall):
            env.call(primitive.name, **_invent_arguments(primitive), no_such_parameter=1)
            yield f"call: must raise InvalidPrimitiveCall for {primitive.name}(no_such_parameter=1)"


def _replay_problems(
    name: str, options: Mapping[str, Any], calls: int, plays: Mapping[Task, list[Event]]
) -> list[str]:
    """Repeat plays in a new process and another order, and return where they differ."""
    tasks = [*plays][::-1]
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            repeated = process.submit(_replay, name, options, calls, tasks).result()
    except Exception as error:
        return [f"in another process, it raised {in_one_line(error)}"]
    return [
        f"determinism: {task}, replayed in another process and order, {difference}"
        for task, play in zip(tasks, repeated, strict=True)
        if (difference := _difference(plays[task], play))
    ]


def _replay(name: str, options: Mapping[str, Any], calls: int, tasks: Sequence[Task]) -> list[list[Event]]:
    REGISTRY.find(name).preload()
    env = make(name, **options)
    try:
        return [_play(env, task, calls, is_watched=False) for task in tasks]
    finally:
        env.close()


def _difference(play: Sequence[Event], repeated: Sequence[Event]) -> str | None:
    """Return where the repetition of a play differs from it; `None` if it does not."""
    for step, (event, again) in enumerate(zip(play, repeated, strict=False)):
        if parts := ", ".join(part for part in again if again[part] != event.get(part)):
            return f"differs in {parts} after {step} equal calls"
    return None if len(play) == len(repeated) else f"ends after {len(repeated) - 1} calls"


def _invent_arguments(
    primitive: Primitive, words: Sequence[str] = ("word",), rng: random.Random | None = None
) -> Any:
    tool = ToolSpec.from_signature(primitive.name, primitive.signature, primitive.doc)
    return invent_value(tool.parameters, words, rng or random.Random(0))


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
