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

    Two training tasks are played with random calls, first in this process, then in a new one with another
    order of tasks and of sets (`PYTHONHASHSEED`), which must give the same texts. In a test:

        assert check_environment("my_env:MyEnv", {"width": 2}) == []

    Args:
        name, options: the environment, as for `envs.make`.
        calls: primitive calls of each play. To check the end of an episode, it must exceed the episode's
            length.

    Returns:
        One line for each broken promise.

    Raises:
        EnvironmentFault: there is no such environment or option, or it has no split.
    """
    options = dict(options or {})
    found, plays = check_here(make(name, **options), splits(name, **options), calls=calls)
    if found:
        return found
    tasks = [*plays][::-1]
    again = _play_in_new_process([name, options, tasks, calls])
    if isinstance(again, str):
        return [again]
    differences = ((task, _difference(plays[task], play)) for task, play in zip(tasks, again, strict=True))
    return [
        f"determinism: {task}, replayed in another process and order, {difference}"
        for task, difference in differences
        if difference
    ]


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
    found = [*_split_findings(env, split), *_attribute_findings(env)]
    plays: dict[Task, list[Event]] = {}
    if found:
        return found, plays
    try:
        found += _unstarted_findings(env)
        for task in (split.train[0], split.train[-1]):
            plays[task] = [*_play(env, task, calls)]
            found += dict.fromkeys(_play_findings(env, plays[task]))
            if difference := _difference(plays[task], _replay(env, plays[task], task)):
                found.append(f"determinism: {task}, replayed with fewer reads of its state, {difference}")
        found += _invalid_call_findings(env, split.train[0])
        found += _unknown_task_findings(env, split.train[0])
        env.close()
        env.close()
    except Exception as error:  # an environment under test may raise anything
        found.append(f"raised {in_one_line(error)} ({place(error, type(env))})")
    return [*dict.fromkeys(found)], plays


def _play(env: TextEnv, task: Task, calls: int) -> Iterator[Event]:
    """Play at random, the same in each process."""
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


def _replay(env: TextEnv, played: Sequence[Event], task: Task) -> list[Event]:
    """Repeat a play as skills do: they read only the results of calls until they end."""
    again: list[Event] = [{"opening": asdict(env.reset(task))}]
    with suppress(EpisodeOver):
        for event in played[1:]:
            name, arguments = event["call"]
            again.append({"text": env.call(name, **arguments)})
    again[-1] |= _state(env)
    return again


def _state(env: TextEnv) -> Event:
    return {
        "done": env.done,
        "outcome": asdict(env.outcome()),
        "snapshot": copy.deepcopy(env.snapshot()),
        "free_observation": env.free_observation(),
    }


def _difference(play: Sequence[Event], again: Sequence[Event]) -> str | None:
    """Return where the repetition of a play differs from it; `None` if it does not."""
    for step, (event, repeated) in enumerate(zip(play, again, strict=False)):
        if parts := ", ".join(part for part in repeated if repeated[part] != event.get(part)):
            return f"differs in {parts} after {step} equal calls"
    return None if len(play) == len(again) else f"ends after {len(again) - 1} calls"


def _play_in_new_process(job: list[Any]) -> str | list[list[Event]]:
    """Return the plays of a job's tasks, or the finding if they cannot be played."""
    environment = {
        "PYTHONHASHSEED": "1",
        "PYTHONPATH": os.pathsep.join(each or os.curdir for each in sys.path),
    }
    code = "from envs.environment_check import play_job; play_job()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        input=msgspec.json.encode(job),
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        return f"in another process, it ended with status {done.returncode}: {lines[-1] if lines else ''}"
    plays: list[list[Event]] = json.loads(done.stdout)
    return plays


def play_job() -> None:
    """Read a job from the standard input, play its tasks in order, and write the plays to the output."""
    name, options, tasks, calls = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        REGISTRY.find(name).preload()
        env = make(name, **options)
        plays = [[*_play(env, Task(**task), calls)] for task in tasks]
        env.close()
    print(json.dumps(plays))


def _split_findings(env: TextEnv, split: Split) -> Iterator[str]:
    tasks = split.train + split.test
    if not split.train or not split.test:
        yield "splits: training or held-out tasks are missing"
    if len(set(tasks)) != len(tasks):
        yield "splits: a task occurs twice, or in both training and held-out tasks"
    for env_name in sorted({task.env for task in tasks} - {env.name}):
        yield f"splits: Task.env is {env_name!r}, but the environment's name is {env.name!r}"


def _attribute_findings(env: TextEnv) -> Iterator[str]:
    if not env.description.strip():
        yield "description: must be the rules as text"
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


def _unstarted_findings(env: TextEnv) -> Iterator[str]:
    if env.done:
        yield "done: is true before the first reset"
    if not _raises_over(env):
        yield "call: must raise EpisodeOver before the first reset"


def _unknown_task_findings(env: TextEnv, task: Task) -> Iterator[str]:
    for wrong in (
        replace(task, env="another environment"),
        replace(task, name="no such task"),
        replace(task, index=-1),
    ):
        if not _raises(UnknownTask, env.reset, wrong):
            yield f"reset: must raise UnknownTask for {wrong}"


def _invalid_call_findings(env: TextEnv, task: Task) -> Iterator[str]:
    env.reset(task)
    before = _state(env)
    if _state(env) != before:
        yield "state: two consecutive reads differ; reading must not change anything"
        return
    wrong_calls: list[tuple[str, dict[str, Any]]] = [("no_such_primitive", {})]
    for primitive in env.primitives:
        arguments = _fake_arguments(primitive, [], random.Random(0))
        wrong_calls.append((primitive.name, arguments | {"no_such_parameter": 1}))
        wrong_calls += [
            (primitive.name, arguments | {name: object()}) for name in primitive.signature.parameters
        ]
    for name, arguments in wrong_calls:
        given = f"{name}({', '.join(arguments)})"
        if not _raises(InvalidPrimitiveCall, env.call, name, **arguments):
            yield f"call: must raise InvalidPrimitiveCall for {given}, whose name or arguments are wrong"
        if _state(env) != before:
            yield f"call: an invalid call changed the world: {given}"
            return


def _play_findings(env: TextEnv, play: Sequence[Event]) -> Iterator[str]:
    if not play[0]["opening"]["instruction"].strip():
        yield "reset: the opening has no instruction"
    if play[0]["done"]:
        yield "done: is true right after reset"
    for event in play:
        yield from _state_findings(event)
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


def _state_findings(event: Event) -> Iterator[str]:
    outcome = event["outcome"]
    if not isinstance(outcome["score"], (int, float)) or not 0 <= outcome["score"] <= 1:
        yield f"outcome: score must be a number in [0, 1], not {outcome['score']!r}"
    if type(outcome["success"]) is not bool or type(event["done"]) is not bool:
        yield "outcome, done: success and done must be booleans"
    for part, value in (("outcome: detail", outcome["detail"]), ("snapshot:", event["snapshot"])):
        if not _is_plain_json(value):
            yield f"{part} must contain only plain JSON values"
    if event["free_observation"] is not None and not isinstance(event["free_observation"], str):
        yield "free observation: must be text or None"


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
