"""Check an environment against the contract of `TextEnv` by playing it at random."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import keyword
import os
import random
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, replace
from typing import Any

import msgspec

from envs.class_registry import in_one_line, place
from envs.env_registry import REGISTRY, make, splits
from envs.text_env import (
    EpisodeOver,
    InvalidPrimitiveCall,
    Primitive,
    Split,
    Task,
    TextEnv,
    UnknownTask,
)

CALLS = 150
"""Primitive calls of one random play, unless the episode ends earlier."""

Event = dict[str, Any]
"""A reset (`opening`) or a call (`call`, `text`) of a play, with the state after it; see `_state`."""


def check_environment(
    name: str, options: Mapping[str, Any] | None = None, *, calls: int = CALLS
) -> list[str]:
    """Check that an environment keeps the promises of `TextEnv`.

    Two training tasks are played with random calls. A new process repeats the calls with another order of
    tasks and of sets (`PYTHONHASHSEED`), and must get the same texts. In a test:

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
    found, plays = check_here(make(name, **options), splits(name, **options), calls=calls)
    return found or _replay_findings(name, options, plays)


def check_here(
    env: TextEnv, split: Split, *, calls: int = CALLS
) -> tuple[list[str], dict[Task, list[Event]]]:
    """Check an environment in this process.

    Args:
        env: newly created, never reset; it is closed at the end.
        split: its tasks.
        calls: primitive calls of each play.

    Returns:
        One line for each broken promise, and the play of each played task.
    """
    found = [*_split_findings(env, split), *_primitive_findings(env)]
    plays: dict[Task, list[Event]] = {}
    if found:
        return found, plays
    try:
        if env.done or not _raises_over(env):
            found.append("done, call: before the first reset, done must be false and EpisodeOver raised")
        for task in (split.train[0], split.train[-1]):
            plays[task] = [*_play(env, task, calls)]
            found += _play_findings(env, plays[task])
        found += _invalid_call_findings(env, split.train[0])
        for change in ({"env": "another environment"}, {"name": "no such task"}, {"index": -1}):
            wrong = replace(split.train[0], **change)
            if not _raises(UnknownTask, env.reset, wrong):
                found.append(f"reset: must raise UnknownTask for {wrong}")
        env.close()
        env.close()
    except Exception as error:  # an environment under test may raise anything
        found.append(f"raised {in_one_line(error)} ({place(error, type(env))})")
    return [*dict.fromkeys(found)], plays


def _play(env: TextEnv, task: Task, calls: int) -> Iterator[Event]:
    """Play at random."""
    rng = random.Random(0)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    yield {"opening": asdict(opening)} | _state(env)
    for _ in range(calls):
        if env.done:
            return
        primitive = rng.choice(env.primitives)
        arguments = _fake_arguments(primitive, words, rng)
        text = env.call(primitive.name, **arguments)
        yield {"call": [primitive.name, arguments], "text": text} | _state(env)
        words += str(text or "").split()


def _state(env: TextEnv) -> Event:
    return {
        "done": env.done,
        "outcome": asdict(env.outcome()),
        "snapshot": copy.deepcopy(env.snapshot()),
        "free_observation": env.free_observation(),
    }


def _replay_findings(name: str, options: Mapping[str, Any], plays: Mapping[Task, list[Event]]) -> list[str]:
    """Repeat plays in a new process, and return where they differ."""
    tasks = [*plays][::-1]
    made = [[event["call"] for event in plays[task][1:]] for task in tasks]
    environment = {
        "PYTHONHASHSEED": "1",
        "PYTHONPATH": os.pathsep.join(each or os.curdir for each in sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from envs.environment_check import replay_job; replay_job()"],
        input=msgspec.json.encode([name, options, tasks, made]),
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        return [f"in another process, it ended with status {done.returncode}: {lines[-1] if lines else ''}"]
    return [
        f"determinism: {task}, replayed in another process and order, {difference}"
        for task, again in zip(tasks, json.loads(done.stdout), strict=True)
        if (difference := _difference(plays[task], again))
    ]


def replay_job() -> None:
    """Read a job from the standard input, replay its tasks in order, and write the plays to the output."""
    name, options, tasks, made = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        REGISTRY.find(name).preload()
        env = make(name, **options)
        plays = [_replay(env, Task(**task), calls) for task, calls in zip(tasks, made, strict=True)]
        env.close()
    print(json.dumps(plays))


def _replay(env: TextEnv, task: Task, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Event]:
    """Repeat a play as skills do: they read only the results of calls until they end."""
    again: list[Event] = [{"opening": asdict(env.reset(task))}]
    with suppress(EpisodeOver):
        for name, arguments in calls:
            again.append({"text": env.call(name, **arguments)})
    again[-1] |= _state(env)
    return again


def _difference(play: Sequence[Event], again: Sequence[Event]) -> str | None:
    """Return where the repetition of a play differs from it; `None` if it does not."""
    for step, (event, repeated) in enumerate(zip(play, again, strict=False)):
        if parts := ", ".join(part for part in repeated if repeated[part] != event.get(part)):
            return f"differs in {parts} after {step} equal calls"
    return None if len(play) == len(again) else f"ends after {len(again) - 1} calls"


def _split_findings(env: TextEnv, split: Split) -> Iterator[str]:
    tasks = split.train + split.test
    if not split.train or not split.test:
        yield "splits: training or held-out tasks are missing"
    if len(set(tasks)) != len(tasks):
        yield "splits: a task occurs twice, or in both training and held-out tasks"
    for env_name in sorted({task.env for task in tasks} - {env.name}):
        yield f"splits: Task.env is {env_name!r}, but the environment's name is {env.name!r}"


def _primitive_findings(env: TextEnv) -> Iterator[str]:
    names = [primitive.name for primitive in env.primitives]
    if not names or len(set(names)) != len(names):
        yield "primitives: there are none, or a name occurs twice"
    for primitive in env.primitives:
        where = f"primitive {primitive.name!r}"
        if not primitive.name.isidentifier() or keyword.iskeyword(primitive.name):
            yield f"{where}: its name must be a Python identifier"
        if not primitive.doc.strip():
            yield f"{where}: has no documentation"
        for parameter in primitive.signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                yield f"{where}: parameter {parameter.name!r} cannot be passed by its name"
            if parameter.name == "name":
                yield f"{where}: rename the parameter 'name', because `call` already has one"
            try:
                _fake_value(parameter.annotation, [], random.Random(0))
            except TypeError as error:
                yield f"{where}: parameter {parameter.name!r}: {error}"
        if primitive.signature.return_annotation not in (str, None, str | None):
            yield f"{where}: its signature's return type must be str, None or str | None"


def _invalid_call_findings(env: TextEnv, task: Task) -> Iterator[str]:
    env.reset(task)
    before = _state(env)
    wrong_calls: list[tuple[str, dict[str, Any]]] = [("no_such_primitive", {})]
    for primitive in env.primitives:
        arguments = _fake_arguments(primitive, [], random.Random(0))
        for name in ("no_such_parameter", *primitive.signature.parameters):
            wrong_calls.append((primitive.name, arguments | {name: object()}))
    for name, arguments in wrong_calls:
        given = f"{name}({', '.join(arguments)})"
        if not _raises(InvalidPrimitiveCall, env.call, name, **arguments):
            yield f"call: must raise InvalidPrimitiveCall for {given}, whose name or arguments are wrong"
        if _state(env) != before:
            yield f"call: an invalid call, or reading the state, changed the world: {given}"
            return


def _play_findings(env: TextEnv, play: Sequence[Event]) -> Iterator[str]:
    if not play[0]["opening"]["instruction"].strip() or play[0]["done"]:
        yield "reset: the opening has no instruction, or the episode is over at once"
    for event in play:
        score, state = event["outcome"]["score"], [event["outcome"]["detail"], event["snapshot"]]
        if not isinstance(score, (int, float)) or not 0 <= score <= 1:
            yield f"outcome: score must be a number in [0, 1], not {score!r}"
        if not _is_plain_json(state):
            yield "outcome, snapshot: the detail and the snapshot must contain only plain JSON values"
    primitives = {each.name: each for each in env.primitives}
    for before, event in itertools.pairwise(play):
        (name, _), text = event["call"], event["text"]
        returns = primitives[name].signature.return_annotation
        if returns is str if text is None else returns is None or not isinstance(text, str):
            yield f"call: {name} returned {type(text).__name__} against its signature"
        changed = any(event[part] != before[part] for part in ("outcome", "snapshot"))
        if changed and not primitives[name].advances:
            yield f"call: {name} changed the world although it does not advance"
    if env.done and not _raises_over(env):
        yield "call: must raise EpisodeOver after the end"


def _fake_arguments(primitive: Primitive, words: list[str], rng: random.Random) -> dict[str, Any]:
    """Return invented values for the parameters without a default; some of them are words that the world has
    used."""
    parameters = primitive.signature.parameters.values()
    return {
        each.name: _fake_value(each.annotation, words, rng)
        for each in parameters
        if each.default is each.empty
    }


def _fake_value(annotation: Any, words: list[str], rng: random.Random) -> Any:
    """Return an invented value: a word that the world has used, a small number, or one of several
    literals."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return rng.choice(inner)
    if origin in (typing.Union, types.UnionType):
        return _fake_value(inner[0], words, rng)
    if origin is list:
        return [_fake_value(inner[0], words, rng)]
    if annotation is str:
        return rng.choice(words or ["word"])
    simple = {bool: rng.random() < 0.5, int: rng.randrange(4), float: rng.random(), types.NoneType: None}
    if annotation not in simple:
        given = "no type" if annotation is inspect.Parameter.empty else inspect.formatannotation(annotation)
        raise TypeError(f"its type must be str, int, float, bool, Literal or list, not {given}")
    return simple[annotation]


def _raises_over(env: TextEnv) -> bool:
    """Return whether a call is refused because there is no episode."""
    first = env.primitives[0]
    return _raises(EpisodeOver, env.call, first.name, **_fake_arguments(first, [], random.Random(0)))


def _raises(expected: type[Exception], action: Callable[..., object], /, *given: Any, **named: Any) -> bool:
    try:
        action(*given, **named)
    except expected:
        return True
    return False


def _is_plain_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False
