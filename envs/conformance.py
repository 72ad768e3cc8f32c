"""What every environment must keep to, checked by playing it at random."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import keyword
import random
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from envs.base import EpisodeOver, InvalidPrimitiveCall, Limits, Primitive, Split, Task, TextEnv, UnknownTask

CALLS = 150
"""Primitive calls of one random play, unless the episode ends before."""


def findings(env: TextEnv, split: Split, *, calls: int = CALLS, seed: int = 0) -> Iterator[str]:
    """Check an environment against the promises of `TextEnv`.

    Two training tasks are played with random primitive calls, the first of them twice.

    Args:
        env: freshly made, never reset; it is closed at the end.
        split: its training and held-out tasks.
        calls: primitive calls of each play; more than an episode lasts, if its end is to be checked too.
        seed: of the random calls.

    Yields:
        One line for each promise that is not kept; nothing for an environment that conforms.
    """
    wrong = list(_split_findings(env, split)) + list(_attribute_findings(env))
    if wrong:
        yield from wrong
        return
    first, second = split.train[0], split.train[-1]
    checks: list[Callable[[], Iterator[str]]] = [
        lambda: _unstarted_findings(env),
        lambda: _unknown_task_findings(env, first),
        lambda: _invalid_call_findings(env, first),
        lambda: _replay_findings(env, first, second, calls, seed),
        lambda: _close_findings(env),
    ]
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # an environment under test may raise anything
            place = _place_within(env, error)
            yield f"{place}: raised {type(error).__name__}: {error}".splitlines()[0]


def fingerprint(env: TextEnv, task: Task, *, calls: int = CALLS, seed: int = 0) -> str:
    """Hash one random play of a task: its calls, texts, states and outcome.

    Environments are deterministic, so the same arguments give the same fingerprint in every process.
    """
    trace = [event for event, _ in _play(env, task, calls, seed)]
    return hashlib.sha256(json.dumps(trace, sort_keys=True, default=repr).encode()).hexdigest()


def _split_findings(env: TextEnv, split: Split) -> Iterator[str]:
    tasks = split.train + split.test
    if not split.train or not split.test:
        yield "splits: training or held-out tasks are missing"
    if len(set(tasks)) != len(tasks):
        yield "splits: a task occurs twice, or in both training and held-out tasks"
    for env_name in sorted({task.env for task in tasks} - {env.name}):
        yield f"splits: Task.env is {env_name!r}, but the environment's name is {env.name!r}"


def _attribute_findings(env: TextEnv) -> Iterator[str]:
    if not isinstance(env.description, str) or not env.description.strip():
        yield "description: must be the rules as text"
    if not isinstance(env.limits, Limits) or any(
        n is not None and n <= 0 for n in asdict(env.limits).values()
    ):
        yield "limits: must be Limits of positive numbers"
    if not env.primitives or not all(isinstance(each, Primitive) for each in env.primitives):
        yield "primitives: must be a tuple of at least one Primitive"
        return
    names = [primitive.name for primitive in env.primitives]
    if len(set(names)) != len(names):
        yield "primitives: a name occurs twice"
    for primitive in env.primitives:
        where = f"primitive {primitive.name!r}"
        if not primitive.name.isidentifier() or keyword.iskeyword(primitive.name):
            yield f"{where}: its name is no Python identifier"
        if not primitive.doc.strip():
            yield f"{where}: has no documentation"
        for parameter in primitive.signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                yield f"{where}: parameter {parameter.name!r} cannot be passed by its name"
            if parameter.annotation is parameter.empty or isinstance(parameter.annotation, str):
                yield f"{where}: parameter {parameter.name!r} has no type (a type's name as text is none)"
            if parameter.name == "name":
                yield f"{where}: no parameter can be called 'name', as `call` has one of its own"
        if primitive.signature.return_annotation not in (str, None, str | None):
            yield f"{where}: its signature's return type must be str, None or str | None"


def _unstarted_findings(env: TextEnv) -> Iterator[str]:
    if env.done:
        yield "done: is true before the first reset"
    primitive = env.primitives[0]
    if not _raises(EpisodeOver, env.call, primitive.name, **_arguments(primitive, [], random.Random(0))):
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
    wrong_calls: list[tuple[str, dict[str, Any]]] = [("no_such_primitive", {})]
    for primitive in env.primitives:
        arguments = _arguments(primitive, [], random.Random(0))
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


def _replay_findings(env: TextEnv, first: Task, second: Task, calls: int, seed: int) -> Iterator[str]:
    played = list(_play(env, first, calls, seed))
    other = list(_play(env, second, calls, seed + 1))
    again = list(_play(env, first, calls, seed))
    yield from dict.fromkeys(problem for _, problems in played + other for problem in problems)
    for step, ((event, _), (repeated, _)) in enumerate(zip(played, again, strict=False)):
        if event != repeated:
            parts = ", ".join(part for part in event if event[part] != repeated.get(part))
            yield f"determinism: {first}, played again, differs in {parts} after {step} equal calls"
            return


def _close_findings(env: TextEnv) -> Iterator[str]:
    env.close()
    try:
        env.close()
    except Exception as error:
        yield f"close: a second call raised {type(error).__name__}"


def _play(env: TextEnv, task: Task, calls: int, seed: int) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Play at random; yield each event (reset, call) and what is wrong with it."""
    rng = random.Random(seed)
    opening = env.reset(task)
    words = [*opening.instruction.split(), *opening.observation.split()]
    event = {"opening": asdict(opening)} | _state(env)
    problems = list(_state_findings(event))
    if not opening.instruction.strip():
        problems.append("reset: the opening has no instruction")
    if env.done:
        problems.append("done: is true right after reset")
    yield event, problems
    for _ in range(calls):
        primitive = rng.choice(env.primitives)
        arguments = _arguments(primitive, words, rng)
        if env.done:
            if not _raises(EpisodeOver, env.call, primitive.name, **arguments):
                yield {}, ["call: must raise EpisodeOver after the end"]
            return
        before = event
        text = env.call(primitive.name, **arguments)
        event = {"call": [primitive.name, arguments], "text": text} | _state(env)
        problems = list(_state_findings(event))
        returns = primitive.signature.return_annotation
        if returns is str if text is None else returns is None or not isinstance(text, str):
            problems.append(f"call: {primitive.name} returned {type(text).__name__} against its signature")
        if not primitive.advances and any(event[part] != before[part] for part in ("outcome", "snapshot")):
            problems.append(f"call: {primitive.name} changed the world although it does not advance")
        words += str(text or "").split()
        yield event, problems


def _state(env: TextEnv) -> dict[str, Any]:
    return {
        "done": env.done,
        "outcome": asdict(env.outcome()),
        "snapshot": copy.deepcopy(env.snapshot()),
        "surroundings": env.surroundings(),
    }


def _state_findings(state: dict[str, Any]) -> Iterator[str]:
    outcome = state["outcome"]
    if not isinstance(outcome["score"], (int, float)) or not 0 <= outcome["score"] <= 1:
        yield f"outcome: score must be a number in [0, 1], not {outcome['score']!r}"
    if type(outcome["success"]) is not bool or type(state["done"]) is not bool:
        yield "outcome, done: success and done must be booleans"
    for part, value in (("outcome: detail", outcome["detail"]), ("snapshot:", state["snapshot"])):
        if not _is_plain_json(value):
            yield f"{part} must hold plain JSON values only"
    if state["surroundings"] is not None and not isinstance(state["surroundings"], str):
        yield "surroundings: must be text or None"


def _arguments(primitive: Primitive, words: list[str], rng: random.Random) -> dict[str, Any]:
    parameters = primitive.signature.parameters.values()
    return {
        each.name: _value(each.annotation, words, rng) for each in parameters if each.default is each.empty
    }


def _value(annotation: Any, words: list[str], rng: random.Random) -> Any:
    """Make up a value: a word that the world has used, a small number, one of several literals."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return rng.choice(inner)
    if origin in (typing.Union, types.UnionType):
        return _value(inner[0], words, rng)
    if origin is list:
        return [_value(inner[0], words, rng)]
    if annotation is str:
        return rng.choice(words or ["word"])
    simple = {bool: rng.random() < 0.5, int: rng.randrange(4), float: rng.random(), types.NoneType: None}
    if annotation not in simple:
        raise TypeError(f"no value can be made up for {inspect.formatannotation(annotation)}")
    return simple[annotation]


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


def _place_within(env: TextEnv, error: Exception) -> str:
    """Name the method of the environment that an error came through."""
    frame, place = error.__traceback__, "the check"
    while frame is not None:
        if frame.tb_frame.f_locals.get("self") is env:
            return frame.tb_frame.f_code.co_name
        frame = frame.tb_next
    return place
