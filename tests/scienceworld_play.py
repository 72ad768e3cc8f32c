"""Playing ScienceWorld in tests: its parser's phrases as primitive calls, and hashes of whole plays.

As a program, `python -m tests.scienceworld_play SEED`, it plays an episode of every task in an order drawn
with the seed, and prints their hashes.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import psutil
from msgspec import to_builtins

from envs import Task
from envs.scienceworld import VARIATIONS, ScienceWorld, variations_for_test
from envs.scienceworld_simulator import Simulator

PATTERNS = {
    r"go to (?P<location>.+)": "go",
    r"look around": "look_around",
    r"(?:look at|examine) (?P<obj>.+)": "look_at",
    r"look in (?P<obj>.+)": "look_in",
    r"pick up (?P<obj>.+)": "pick_up",
    r"(?:put down|drop) (?P<obj>.+)": "put_down",
    r"(?:move|put) (?P<obj>.+) (?:to|in) (?P<target>.+)": "move",
    r"pour (?P<obj>.+) (?:in|into) (?P<target>.+)": "pour",
    r"dunk (?P<obj>.+) (?:in|into) (?P<target>.+)": "dunk",
    r"connect (?P<obj_a>.+) to (?P<obj_b>.+)": "connect",
    r"use (?P<obj>.+) on (?P<target>.+)": "use",
    r"focus on (?P<obj>.+)": "focus_on",
    r"(?P<name>open|close|activate|deactivate|disconnect|mix|read|eat|flush) (?P<obj>.+)": "",
    r"inventory": "inventory",
    r"task": "task_description",
    r"wait1": "wait",
    r"(?P<option>\d+)": "disambiguate",
}


def primitive_call(phrase: str) -> tuple[str, dict[str, Any]]:
    """The call of a primitive that says the same as a phrase of the parser."""
    for pattern, name in PATTERNS.items():
        if match := re.fullmatch(pattern, phrase):
            arguments: dict[str, Any] = match.groupdict()
            if "option" in arguments:
                arguments["option"] = int(arguments["option"])
            return arguments.pop("name", name), arguments
    raise ValueError(f"no primitive says {phrase!r}")


def play(env: ScienceWorld, phrases: Iterable[str]) -> list[str]:
    """Say all phrases through primitives. Upstream's `wait` is eleven ticks, our `wait` two."""
    texts = []
    for phrase in phrases:
        for said in ["wait1"] * 6 if phrase == "wait" else [phrase]:
            name, arguments = primitive_call(said)
            texts.append(env.call(name, **arguments))
    return texts


def gold_path(simulator: Simulator, task: str, variation: int) -> list[str]:
    """The simulator's own solution. Only tests ask for it."""
    simulator._interface.load(task, variation, "", True)
    return list(simulator._interface.getGoldActionSequence())


def trace_hash(env: ScienceWorld, task: Task, random_actions: int) -> tuple[str, float]:
    """Hash a play of the gold path and then of random valid actions: all texts, scores and valid actions.

    The second value is the score before the random actions.
    """
    env.warm_up()
    assert env._simulator is not None
    gold = gold_path(env._simulator, task.name, task.index)
    trace: list[Any] = [gold, to_builtins(env.reset(task))]
    assert env.outcome().score == 0.0
    simulator = env._simulator  # perhaps another one, if the first has grown

    def keep(phrase: str, texts: list[str]) -> None:
        trace.append([phrase, texts, simulator.look(), simulator.score(), simulator.moves()])

    for phrase in (*gold, "look at substance", "0"):  # the last two: a request that is mostly ambiguous
        keep(phrase, play(env, [phrase]))
    score = env.outcome().score
    rng = random.Random(task.name)
    for _ in range(random_actions):
        valid = [a for a in simulator._interface.getValidActionObjectCombinations() if a != "reset task"]
        trace.append(valid)
        keep(phrase := rng.choice(valid), [simulator.step(phrase)])
    return hashlib.sha256(json.dumps(trace).encode()).hexdigest(), score


def play_tasks(seed: int) -> tuple[str, set[str], int]:
    """Play an episode of every task, in an order drawn with the seed.

    Returns a line with each task's hash, the tasks solved by their gold paths, and the most bytes of memory.
    """
    names = list(VARIATIONS)
    random.Random(seed).shuffle(names)
    lines, solved, peak = list[str](), set[str](), 0
    with closing(ScienceWorld()) as env:
        for name in names:
            task = Task("scienceworld", name, variations_for_test(name)[-1])
            digest, score = trace_hash(env, task, random_actions=3)
            lines.append(f"{name}: {digest}\n")
            solved |= {name} if score == 1.0 else set()
            assert env._simulator is not None
            peak = max(peak, psutil.Process(env._simulator.pid).memory_info().rss)
    return "".join(sorted(lines)), solved, peak


if __name__ == "__main__":
    print(play_tasks(int(sys.argv[1]))[0], end="")
