"""What every environment must do, checked by playing it at random: the promises of `envs.TextEnv`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import pytest

from envs import EpisodeOver, InvalidPrimitiveCall, Task, TextEnv, make, splits
from serving.tokens.tools import Schema, ToolSpec


def check_environment(name: str, options: dict[str, Any] | None = None, *, calls: int = 150) -> None:
    """Play two training tasks with random calls, and again with another instance in another order.

    `speedrunner verify` repeats the calls of a run in another process.
    """
    options = options or {}
    split = splits(name, **options)
    listed = split.train + split.test
    assert split.train
    assert split.test
    assert len(set(listed)) == len(listed)
    tasks = [split.train[0], split.train[-1]]
    with closing(make(name, **options)) as env:
        plays = [_play(env, task, calls) for task in tasks]
    with closing(make(name, **options)) as env:
        assert [_play(env, task, calls) for task in tasks[::-1]] == plays[::-1]


def _play(env: TextEnv, task: Task, calls: int) -> list[Any]:
    """Play at random. Texts in calls are words that the world has used."""
    rng = random.Random(0)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    events: list[Any] = [asdict(opening), _state(env)]
    for name in (*(primitive.name for primitive in env.primitives), "no_such_primitive"):
        with pytest.raises(InvalidPrimitiveCall):
            env.call(name, no_such_parameter=1)
    for _ in range(calls):
        primitive = rng.choice(env.primitives)
        schema = ToolSpec.from_signature(primitive.name, primitive.signature, primitive.doc).parameters
        arguments = _invent_value(schema, words, rng)
        if env.done:
            with pytest.raises(EpisodeOver):
                env.call(primitive.name, **arguments)
            break
        text = env.call(primitive.name, **arguments)
        assert isinstance(text, primitive.signature.return_annotation or type(None))
        events += [primitive.name, arguments, text, env.free_observation(), _state(env)]
        assert primitive.advances or events[-1] == events[-6]
        words += str(text or "").split()
    return events


def _state(env: TextEnv) -> dict[str, Any]:
    outcome = env.outcome()
    assert 0 <= outcome.score <= 1
    state = {"done": env.done, "outcome": asdict(outcome)}
    return dict(json.loads(json.dumps(state, allow_nan=False)))


def _invent_value(schema: Schema, texts: Sequence[str], rng: random.Random) -> Any:
    """Invent a value for a schema, without what is optional."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {
                name: _invent_value(schema["properties"][name], texts, rng) for name in schema["required"]
            }
        case "string":
            return rng.choice(texts)
        case "boolean":
            return rng.random() < 0.5
    return rng.randrange(4)
