"""Check an environment against the contract of `TextEnv` by playing it at random."""

from __future__ import annotations

import json
import keyword
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from envs.class_registry import in_one_line, place
from envs.env_registry import make, splits
from envs.option_values import format_value
from envs.random_play import (
    CALLS,
    PARTS,
    PlayJob,
    difference,
    fake_arguments,
    fake_value,
    play,
    read,
    state,
    trace,
)
from envs.text_env import (
    EpisodeOver,
    InvalidPrimitiveCall,
    Limits,
    Primitive,
    Split,
    Task,
    TextEnv,
    UnknownTask,
)

PROCESS_LIMIT_S = 600.0
"""Seconds that the plays in another process may take."""


def check_environment(
    name: str, options: Mapping[str, Any] | None = None, *, task: Task | None = None, calls: int = CALLS
) -> list[str]:
    """Check that an environment keeps the promises of `TextEnv`.

    The environment is played with random calls, first in this process, then in a new one with another order
    of tasks and of sets (`PYTHONHASHSEED`), which must give the same texts. In a test:

        assert check_environment("my_env:MyEnv", {"width": 2}) == []

    Args:
        name, options: the environment, as for `envs.make`.
        task: the task to play, if the environment has no split. By default, two training tasks are played.
        calls: primitive calls of each play. To check the end of an episode, it must exceed the episode's
            length.

    Returns:
        One line for each broken promise.

    Raises:
        EnvironmentFault: there is no such environment or option, or it has no split and `task` is missing.
    """
    options = dict(options or {})
    tasks = task or splits(name, **options)
    if found := list(findings(make(name, **options), tasks, calls=calls)):
        return found
    played = list(dict.fromkeys(_played_tasks(tasks)))
    env = make(name, **options)
    here = {each: trace(env, each, calls=calls) for each in played}
    env.close()
    there = _play_in_new_process(PlayJob(name, options, played[::-1], calls))
    if isinstance(there, str):
        return [there]
    differences = (
        (each, difference(here[each], again)) for each, again in zip(played[::-1], there, strict=True)
    )
    return [
        f"determinism: {each}, replayed in another process and order, {found}"
        for each, found in differences
        if found
    ]


def _play_in_new_process(job: PlayJob) -> str | list[list[dict[str, str]]]:
    """Return the traces of the job's tasks, or the finding if they cannot be played."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "traces.json")
        environment = {
            "PYTHONHASHSEED": "1",
            "PYTHONPATH": os.pathsep.join(each or os.curdir for each in sys.path),
        }
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", "from envs.random_play import main; main()", str(out)],
                input=msgspec.json.encode(job),
                env=os.environ | environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PROCESS_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"in another process, the plays did not end within {PROCESS_LIMIT_S:g} s"
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            return f"in another process, it ended with status {done.returncode}: {lines[-1] if lines else ''}"
        return msgspec.json.decode(out.read_bytes(), type=list[list[dict[str, str]]])


class _Recorder:
    """Passes everything on to an environment and records the last request, to describe errors.

    Attributes:
        asked: the last request, such as `call: walk(steps=1) with task.name=maze task.index=7`.
    """

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self._task = ""
        self.asked = ""

    def __getattr__(self, name: str) -> Any:
        self.asked = f"{name}{self._task}"
        value = getattr(self._env, name)
        return partial(getattr(self, f"_{name}"), value) if name in ("reset", "call") else value

    def _reset(self, reset: Callable[[Task], object], task: Task) -> object:
        self.asked, self._task = f"reset: {task}", ""
        opening = reset(task)
        self._task = f" with task.name={task.name} task.index={task.index}"
        return opening

    def _call(self, call: Callable[..., object], name: str, **arguments: Any) -> object:
        given = ", ".join(f"{parameter}={format_value(value)}" for parameter, value in arguments.items())
        self.asked = f"call: {name}({given}){self._task}"
        return call(name, **arguments)

    def describe_error(self, error: Exception) -> str:
        """Describe an error of the last request, and its place."""
        return f"{self.asked} raised {in_one_line(error)} ({self.place(error)})"

    def place(self, error: Exception) -> str:
        """Return where an error was raised: in the environment's own file, if possible."""
        return place(error, type(self._env))


def findings(checked: TextEnv, tasks: Split | Task, *, calls: int = CALLS) -> Iterator[str]:
    """Check an environment in this process.

    Two training tasks are played with random primitive calls, the first of them three times.

    Args:
        checked: newly created, never reset; it is closed at the end.
        tasks: its training and held-out tasks; or the task to play, if it has no split.
        calls: primitive calls of each play.

    Yields:
        One line for each broken promise.
    """
    env: Any = _Recorder(checked)
    wrong = list(_attribute_findings(env))
    if isinstance(tasks, Split):
        wrong = list(_split_findings(env, tasks)) + wrong
    if wrong:
        yield from wrong
        return
    first, second = _played_tasks(tasks)
    checks: list[Callable[[], Iterator[str]]] = [
        lambda: _unstarted_findings(env),
        lambda: _replay_findings(env, first, second, calls),
        lambda: _invalid_call_findings(env, first),
        lambda: _unknown_task_findings(env, first),
        lambda: _close_findings(env),
    ]
    reported = set()
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # an environment under test may raise anything
            fault = (type(error), env.place(error))
            if fault not in reported:
                yield env.describe_error(error)
            reported.add(fault)


def _played_tasks(tasks: Split | Task) -> tuple[Task, Task]:
    """Return the two tasks that a check plays, or one of them twice."""
    return (tasks.train[0], tasks.train[-1]) if isinstance(tasks, Split) else (tasks, tasks)


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
            yield f"{where}: its name must be a Python identifier"
        if not primitive.doc.strip():
            yield f"{where}: has no documentation"
        for parameter in primitive.signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                yield f"{where}: parameter {parameter.name!r} cannot be passed by its name"
            if parameter.annotation is parameter.empty or isinstance(parameter.annotation, str):
                yield (
                    f"{where}: parameter {parameter.name!r} has no type (the name of a type as text"
                    " does not count)"
                )
            else:
                try:
                    fake_value(parameter.annotation, [], random.Random(0))
                except TypeError as error:
                    yield f"{where}: parameter {parameter.name!r}: {error}"
            if parameter.name == "name":
                yield f"{where}: rename the parameter 'name', because `call` already has one"
        if primitive.signature.return_annotation not in (str, None, str | None):
            yield f"{where}: its signature's return type must be str, None or str | None"


def _unstarted_findings(env: TextEnv) -> Iterator[str]:
    if env.done:
        yield "done: is true before the first reset"
    name, arguments = _first_call(env)
    if not _raises(EpisodeOver, env.call, name, **arguments):
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
    unsteady = list(_reading_findings(env))
    yield from unsteady
    before = state(env)
    wrong_calls: list[tuple[str, dict[str, Any]]] = [("no_such_primitive", {})]
    for primitive in env.primitives:
        arguments = fake_arguments(primitive, [], random.Random(0))
        wrong_calls.append((primitive.name, arguments | {"no_such_parameter": 1}))
        wrong_calls += [
            (primitive.name, arguments | {name: object()}) for name in primitive.signature.parameters
        ]
    for name, arguments in wrong_calls:
        given = f"{name}({', '.join(arguments)})"
        if not _raises(InvalidPrimitiveCall, env.call, name, **arguments):
            yield f"call: must raise InvalidPrimitiveCall for {given}, whose name or arguments are wrong"
        if not unsteady and state(env) != before:
            yield f"call: an invalid call changed the world: {given}"
            return


def _reading_findings(env: TextEnv) -> Iterator[str]:
    """Check that reading the state does not change it."""
    unsteady = [part for part in PARTS if read(env, part) != read(env, part)]
    yield from (
        f"{part}: two consecutive reads differ; reading must not change anything" for part in unsteady
    )
    for part in () if unsteady else PARTS:
        for other in PARTS:
            before = read(env, other)
            read(env, part)
            if read(env, other) != before:
                yield f"{part}: reading it changed {other}; reading must not change anything"


def _replay_findings(env: TextEnv, first: Task, second: Task, calls: int) -> Iterator[str]:
    played, problems = _play_at_random(env, first, calls, seed=0)
    unread = _difference_unread(env, first, played)  # this and the next play make the preceding resets differ
    _, others = _play_at_random(env, second, calls, seed=1)
    again, _ = _play_at_random(env, first, calls, seed=0)
    yield from dict.fromkeys(problems + others)
    if found := difference(played, again):
        yield f"determinism: {first}, replayed, {found}"
    elif unread:
        yield f"determinism: {first}, replayed without reading {', '.join(PARTS)} in between, {unread}"


def _difference_unread(env: TextEnv, task: Task, played: Sequence[dict[str, Any]]) -> str | None:
    """Repeat a play as skills do: they read only the results of calls until they end."""
    again: list[dict[str, Any]] = [{"opening": asdict(env.reset(task))}]
    try:
        for event in played[1:]:
            name, arguments = event["call"]
            again.append({"call": event["call"], "text": env.call(name, **arguments)})
    except EpisodeOver:
        return f"ends after {len(again) - 1} calls"
    again[-1] |= state(env)
    seen = [{part: event[part] for part in repeated} for event, repeated in zip(played, again, strict=True)]
    return difference(seen, again)


def _close_findings(env: Any) -> Iterator[str]:
    env.close()
    try:
        env.close()
    except Exception as error:
        yield f"close: a second call raised {in_one_line(error)} ({env.place(error)})"


def _play_at_random(
    env: TextEnv, task: Task, calls: int, seed: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Play at random. Return the events and their problems."""
    played: list[dict[str, Any]] = []
    problems: list[str] = []
    for event in play(env, task, calls=calls, seed=seed):
        problems += _state_findings(event)
        problems += _call_findings(env, played[-1], event) if played else _opening_findings(event)
        played.append(event)
    if env.done:
        name, arguments = played[-1].get("call") or _first_call(env)
        if not _raises(EpisodeOver, env.call, name, **arguments):
            problems.append("call: must raise EpisodeOver after the end")
    return played, problems


def _opening_findings(event: dict[str, Any]) -> Iterator[str]:
    if not event["opening"]["instruction"].strip():
        yield "reset: the opening has no instruction"
    if event["done"]:
        yield "done: is true right after reset"


def _call_findings(env: TextEnv, before: dict[str, Any], event: dict[str, Any]) -> Iterator[str]:
    (name, _), text = event["call"], event["text"]
    primitive = next(each for each in env.primitives if each.name == name)
    returns = primitive.signature.return_annotation
    if returns is str if text is None else returns is None or not isinstance(text, str):
        yield f"call: {name} returned {type(text).__name__} against its signature"
    if not primitive.advances and any(event[part] != before[part] for part in ("outcome", "snapshot")):
        yield f"call: {name} changed the world although it does not advance"


def _state_findings(state: dict[str, Any]) -> Iterator[str]:
    outcome = state["outcome"]
    if not isinstance(outcome["score"], (int, float)) or not 0 <= outcome["score"] <= 1:
        yield f"outcome: score must be a number in [0, 1], not {outcome['score']!r}"
    if type(outcome["success"]) is not bool or type(state["done"]) is not bool:
        yield "outcome, done: success and done must be booleans"
    for part, value in (("outcome: detail", outcome["detail"]), ("snapshot:", state["snapshot"])):
        if not _is_plain_json(value):
            yield f"{part} must contain only plain JSON values"
    if state["free_observation"] is not None and not isinstance(state["free_observation"], str):
        yield "free observation: must be text or None"
    texts = [state.get(part) for part in ("opening", "text", "free_observation")]
    try:
        json.dumps(texts, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        yield "texts: contain a lone surrogate, which cannot be written to a file or sent to a model"


def _first_call(env: TextEnv) -> tuple[str, dict[str, Any]]:
    return env.primitives[0].name, fake_arguments(env.primitives[0], [], random.Random(0))


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
