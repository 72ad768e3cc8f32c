"""Playing ScienceWorld in tests: its parser's phrases as primitive calls, and hashes of whole plays.

As a program, `python -m tests.scienceworld_play SEED [TASK:VARIATION:RANDOM_ACTIONS...]`, it plays episodes
(by default one of every task) in an order drawn with the seed, all in one Java process, and prints one line
of JSON: each episode's hash, and the most memory used.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Iterable
from typing import Any

from envs.scienceworld import ScienceWorld
from envs.scienceworld_jvm import Simulator
from envs.scienceworld_tasks import VARIATIONS, variations_for_test

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
        if found := re.fullmatch(pattern, phrase):
            arguments: dict[str, Any] = found.groupdict()
            if "option" in arguments:
                arguments["option"] = int(arguments["option"])
            return arguments.pop("name", name), arguments
    raise ValueError(f"no primitive says {phrase!r}")


def play(env: ScienceWorld, phrases: Iterable[str]) -> list[str]:
    """Say all phrases through primitives. Upstream's `wait` is eleven ticks, our `wait` two."""
    texts = []
    for phrase in phrases:
        for each in ["wait1"] * 6 if phrase == "wait" else [phrase]:
            name, arguments = primitive_call(each)
            texts.append(env.call(name, **arguments))
    return texts


def gold_path(simulator: Simulator, task: str, variation: int) -> list[str]:
    """The simulator's own solution. Only tests ask for it."""
    simulator._interface.load(task, variation, "", True)
    return list(simulator._interface.getGoldActionSequence())


def trace_hash(simulator: Simulator, task: str, variation: int, random_actions: int) -> str:
    """Hash a play of the gold path and then of random valid actions: all texts, scores and valid actions."""
    gold = gold_path(simulator, task, variation)
    trace: list[Any] = [gold]
    simulator.load(task, variation)

    def step(phrase: str) -> None:
        trace.append([phrase, simulator.step(phrase), simulator.look(), simulator.score(), simulator.moves()])

    step("look around")
    for phrase in (*gold, "look at substance", "0"):  # the last two: a request that is mostly ambiguous
        step(phrase)
    rng = random.Random(task)
    for _ in range(random_actions):
        valid = [a for a in simulator._interface.getValidActionObjectCombinations() if a != "reset task"]
        trace.append(valid)
        step(rng.choice(valid))
    return hashlib.sha256(json.dumps(trace).encode()).hexdigest()


def main() -> None:
    """The command line."""
    seed = int(sys.argv[1])
    episodes = [name.split(":") for name in sys.argv[2:]] or [
        [name, str(variations_for_test(name)[0]), "10"] for name in VARIATIONS
    ]
    random.Random(seed).shuffle(episodes)
    simulator = Simulator()
    hashes, peak = {}, 0
    for name, variation, random_actions in episodes:
        hashes[name] = trace_hash(simulator, name, int(variation), int(random_actions))
        peak = max(peak, simulator.resident_bytes())
    simulator.close()
    print(json.dumps({"hashes": dict(sorted(hashes.items())), "peak_bytes": peak}))


if __name__ == "__main__":
    main()
