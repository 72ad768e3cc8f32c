"""Check in a test that an environment keeps the promises of `envs.TextEnv`, by playing it at random."""

from __future__ import annotations

import copy
import itertools
import json
import keyword
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import Any

import msgspec

from envs import EpisodeOver, InvalidPrimitiveCall, Primitive, Split, Task, TextEnv, UnknownTask, make, splits
from envs.class_registry import in_one_line, place
from envs.env_registry import REGISTRY
from serving.errors import InvalidTool
from serving.tokens.tools import Schema, ToolSpec

Event = dict[str, Any]
"""A reset (`opening`) or a call (`call`, `text`) of a play, with the state after it; see `_state`."""


def check_environment(name: str, options: Mapping[str, Any] | None = None, *, calls: int = 150) -> list[str]:
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
    env, split = make(name, **options), splits(name, **options)
    problems = [*_split_problems(env, split), *_primitive_problems(env)]
    plays: dict[Task, list[Event]] = {}
    if not problems:
        try:
            problems += _play_problems(env, split, calls, plays)
            env.close()
            env.close()
        except Exception as error:  # an environment under test may raise anything
            problems.append(f"raised {in_one_line(error)} ({place(error, type(env))})")
    return [*dict.fromkeys(problems)] or _replay_problems(name, options, calls, plays)


def _split_problems(env: TextEnv, split: Split) -> Iterator[str]:
    tasks = split.train + split.test
    if not split.train or not split.test:
        yield "splits: training or held-out tasks are missing"
    if len(set(tasks)) != len(tasks):
        yield "splits: a task occurs twice, or in both training and held-out tasks"
    for env_name in sorted({task.env for task in tasks} - {env.name}):
        yield f"splits: Task.env is {env_name!r}, but the environment's name is {env.name!r}"


def _primitive_problems(env: TextEnv) -> Iterator[str]:
    names = [primitive.name for primitive in env.primitives]
    if not names or len(set(names)) != len(names):
        yield "primitives: there are none, or a name occurs twice"
    for primitive in env.primitives:
        where = f"primitive {primitive.name!r}"
        if not primitive.name.isidentifier() or keyword.iskeyword(primitive.name):
            yield f"{where}: its name must be a Python identifier"
        if not primitive.doc.strip():
            yield f"{where}: has no documentation"
        if "name" in primitive.signature.parameters:
            yield f"{where}: rename the parameter 'name', because `call` already has one"
        if primitive.signature.return_annotation not in (str, None, str | None):
            yield f"{where}: its signature's return type must be str, None or str | None"
        try:
            _tool(primitive)
        except InvalidTool as error:
            yield f"{where}: {error}"


def _play_problems(env: TextEnv, split: Split, calls: int, plays: dict[Task, list[Event]]) -> Iterator[str]:
    """Play a new environment in this process. Fills `plays` and yields what is wrong."""
    if env.done or not _raises_over(env):
        yield "done, call: before the first reset, done must be false and EpisodeOver raised"
    for task in (split.train[0], split.train[-1]):
        plays[task] = _play(env, task, calls, is_watched=True)
        yield from _event_problems(env, plays[task])
        if env.done and not _raises_over(env):
            yield "call: must raise EpisodeOver after the end"
    yield from _invalid_call_problems(env, split.train[0])
    for change in ({"env": "another environment"}, {"name": "no such task"}, {"index": -1}):
        wrong = replace(split.train[0], **change)
        if not _raises(UnknownTask, env.reset, wrong):
            yield f"reset: must raise UnknownTask for {wrong}"


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
    return {
        "done": env.done,
        "outcome": asdict(env.outcome()),
        "snapshot": copy.deepcopy(env.snapshot()),
        "free_observation": env.free_observation(),
    }


def _event_problems(env: TextEnv, play: Sequence[Event]) -> Iterator[str]:
    if not play[0]["opening"]["instruction"].strip() or play[0]["done"]:
        yield "reset: the opening has no instruction, or the episode is over at once"
    for event in play:
        score, state = event["outcome"]["score"], [event["outcome"]["detail"], event["snapshot"]]
        if not isinstance(score, (int, float)) or not 0 <= score <= 1:
            yield f"outcome: score must be a number in [0, 1], not {score!r}"
        if not _is_plain_json(state):
            yield "outcome, snapshot: the detail and the snapshot must contain only plain JSON values"
    primitives = {primitive.name: primitive for primitive in env.primitives}
    for before, event in itertools.pairwise(play):
        (name, _), text = event["call"], event["text"]
        returns = primitives[name].signature.return_annotation
        if returns is str if text is None else returns is None or not isinstance(text, str):
            yield f"call: {name} returned {type(text).__name__} against its signature"
        changed = any(event[part] != before[part] for part in ("outcome", "snapshot"))
        if changed and not primitives[name].advances:
            yield f"call: {name} changed the world although it does not advance"


def _invalid_call_problems(env: TextEnv, task: Task) -> Iterator[str]:
    env.reset(task)
    before = _state(env)
    wrong_calls: list[tuple[str, dict[str, Any]]] = [("no_such_primitive", {})]
    for primitive in env.primitives:
        arguments = _invent_arguments(primitive)
        for name in ("no_such_parameter", *primitive.signature.parameters):
            wrong_calls.append((primitive.name, arguments | {name: object()}))
    for name, arguments in wrong_calls:
        given = f"{name}({', '.join(arguments)})"
        if not _raises(InvalidPrimitiveCall, env.call, name, **arguments):
            yield f"call: must raise InvalidPrimitiveCall for {given}, whose name or arguments are wrong"
        if _state(env) != before:
            yield f"call: an invalid call, or reading the state, changed the world: {given}"
            return


def _replay_problems(
    name: str, options: Mapping[str, Any], calls: int, plays: Mapping[Task, list[Event]]
) -> list[str]:
    """Repeat plays in a new process and another order, and return where they differ."""
    tasks = [*plays][::-1]
    environment = {
        "PYTHONHASHSEED": "1",
        "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"from {__name__} import replay_job; replay_job()"],
        input=msgspec.json.encode([name, options, calls, tasks]),
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        return [f"in another process, it ended with status {done.returncode}: {lines[-1] if lines else ''}"]
    return [
        f"determinism: {task}, replayed in another process and order, {difference}"
        for task, repeated in zip(tasks, json.loads(done.stdout), strict=True)
        if (difference := _difference(plays[task], repeated))
    ]


def replay_job() -> None:
    """Read a job from the standard input, play its tasks in order, and write the plays to the output."""
    name, options, calls, tasks = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        REGISTRY.find(name).preload()
        env = make(name, **options)
        plays = [_play(env, Task(**task), calls, is_watched=False) for task in tasks]
        env.close()
    print(json.dumps(plays))


def _difference(play: Sequence[Event], repeated: Sequence[Event]) -> str | None:
    """Return where the repetition of a play differs from it; `None` if it does not."""
    for step, (event, again) in enumerate(zip(play, repeated, strict=False)):
        if parts := ", ".join(part for part in again if again[part] != event.get(part)):
            return f"differs in {parts} after {step} equal calls"
    return None if len(play) == len(repeated) else f"ends after {len(repeated) - 1} calls"


def _tool(primitive: Primitive) -> ToolSpec:
    return ToolSpec.from_signature(primitive.name, primitive.signature, primitive.doc)


def _invent_arguments(
    primitive: Primitive, words: Sequence[str] = ("word",), rng: random.Random | None = None
) -> Any:
    """Invent values for the parameters without a default."""
    return _invent_value(_tool(primitive).parameters, words, rng or random.Random(0))


def _invent_value(schema: Schema, words: Sequence[str], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {
                name: _invent_value(schema["properties"][name], words, rng) for name in schema["required"]
            }
        case "array":
            return [_invent_value(schema["items"], words, rng)]
        case "string":
            return rng.choice(words)
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            return rng.randrange(4)
    return rng.random()


def _raises_over(env: TextEnv) -> bool:
    """Return whether a call is refused because there is no episode."""
    return _raises(EpisodeOver, env.call, env.primitives[0].name, **_invent_arguments(env.primitives[0]))


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
