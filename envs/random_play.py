"""Random plays of an environment, and comparisons of two plays."""

from __future__ import annotations

import copy
import inspect
import json
import random
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from envs.env_registry import REGISTRY, make
from envs.text_env import Primitive, Task, TextEnv

CALLS = 150
"""Primitive calls of one random play, unless the episode ends earlier."""

PARTS = ("done", "outcome", "snapshot", "free_observation")
"""Parts of an environment's state that can be read at any time of an episode."""


def play(env: TextEnv, task: Task, *, calls: int = CALLS, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Play at random.

    Yields:
        The reset and each call, with the resulting state: `opening`, or `call` (name and arguments) and
            `text`, and in both cases the `PARTS`.
    """
    rng = random.Random(seed)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    yield {"opening": asdict(opening)} | state(env)
    for _ in range(calls):
        if env.done:
            return
        primitive = rng.choice(env.primitives)
        arguments = fake_arguments(primitive, words, rng)
        text = env.call(primitive.name, **arguments)
        yield {"call": [primitive.name, arguments], "text": text} | state(env)
        words += str(text or "").split()


def state(env: TextEnv) -> dict[str, Any]:
    """Read all `PARTS`."""
    return {part: read(env, part) for part in PARTS}


def read(env: TextEnv, part: str) -> Any:
    """Read the current value of one of `PARTS`."""
    if part == "done":
        return env.done
    if part == "outcome":
        return asdict(env.outcome())
    return copy.deepcopy(env.snapshot()) if part == "snapshot" else env.free_observation()


def trace(env: TextEnv, task: Task, *, calls: int = CALLS, seed: int = 0) -> list[dict[str, str]]:
    """Return a random play as plain texts.

    Environments are deterministic, so the same arguments give the same trace in every process.
    """
    return [
        {part: json.dumps(value, sort_keys=True, default=repr) for part, value in event.items()}
        for event in play(env, task, calls=calls, seed=seed)
    ]


def difference(first: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> str | None:
    """Return where two plays, or two traces, of one task and seed differ; `None` if they do not."""
    for step, (event, repeated) in enumerate(zip(first, again, strict=False)):
        if event != repeated:
            parts = ", ".join(part for part in event if event[part] != repeated.get(part))
            return f"differs in {parts} after {step} equal calls"
    return None


def fake_arguments(primitive: Primitive, words: list[str], rng: random.Random) -> dict[str, Any]:
    """Return invented values for the parameters without a default; some of them are words that the world has
    used."""
    parameters = primitive.signature.parameters.values()
    return {
        each.name: fake_value(each.annotation, words, rng)
        for each in parameters
        if each.default is each.empty
    }


def fake_value(annotation: Any, words: list[str], rng: random.Random) -> Any:
    """Return an invented value: a word that the world has used, a small number, or one of several
    literals."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return rng.choice(inner)
    if origin in (typing.Union, types.UnionType):
        return fake_value(inner[0], words, rng)
    if origin is list:
        return [fake_value(inner[0], words, rng)]
    if annotation is str:
        return rng.choice(words or ["word"])
    simple = {bool: rng.random() < 0.5, int: rng.randrange(4), float: rng.random(), types.NoneType: None}
    if annotation not in simple:
        given = inspect.formatannotation(annotation)
        raise TypeError(f"unsupported type {given}; use str, int, float, bool, Literal or list")
    return simple[annotation]


class PlayJob(msgspec.Struct, frozen=True):
    """Tasks of an environment that another process plays in this order."""

    env: str
    options: dict[str, Any]
    tasks: list[Task]
    calls: int


def main() -> None:
    """Read a `PlayJob` from the standard input, play its tasks and write their traces to a file."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=PlayJob)
    REGISTRY.find(job.env).preload()
    env = make(job.env, **job.options)
    traces = [trace(env, task, calls=job.calls) for task in job.tasks]
    env.close()
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(traces))


if __name__ == "__main__":
    main()
