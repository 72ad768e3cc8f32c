"""Training text of the random models' tokenizer: a synthetic sample of their inputs and outputs.

A seeded generator composes games (missions, observations, tool calls). Prompts, documentation and skill code
are in `corpus.yaml`. Only the statistics of the text matter, not its truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_suffix(".yaml")
SAMPLE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


def documents() -> Iterator[str]:
    """Yield the documents of the corpus, in the same sequence in every process."""
    rng = random.Random(0)
    for _ in range(6):
        yield from (SAMPLE["prose"], SAMPLE["words"], SAMPLE["code"])
    for _ in range(300):
        for compose in (_mission, _observation, _call, _schema, _crafter, _science):
            yield compose(rng)


def _one(rng: random.Random, kind: str) -> str:
    return str(rng.choice(SAMPLE[kind]))


def _object(rng: random.Random) -> str:
    return f"{_one(rng, 'colors')} {_one(rng, 'types')}"


def _mission(rng: random.Random) -> str:
    first, then = _object(rng), _object(rng)
    return rng.choice(
        (
            f"Your task is to pick up the {first}, then go to the {then}.",
            f"go to the {then} after you pick up the {first}",
            f"open the {first}",
            f"put the {first} next to the {then}",
            f"<think>\nThe {first} is in view. I go to it, then to the {then}.\n</think>\n\n",
        )
    )


def _offset(rng: random.Random) -> str:
    side, ahead = rng.randint(0, 3), rng.randint(0, 6)
    across = f"{side} step{'s' * (side != 1)} {rng.choice(('left', 'right'))}" if side else ""
    along = f"{ahead} step{'s' * (ahead != 1)} forward" if ahead else ""
    return " and ".join(filter(None, (across, along))) or "1 step forward"


def _observation(rng: random.Random) -> str:
    lines = [f"a wall {rng.randint(1, 6)} steps {rng.choice(('forward', 'left', 'right'))}"]
    lines += [f"a {_object(rng)} {_offset(rng)}" for _ in range(rng.randint(1, 4))]
    lines += [f"You carry a {_object(rng)}"] * (rng.random() < 0.3)
    lines += [f"a {rng.choice(('open', 'closed', 'locked'))} {_one(rng, 'colors')} door {_offset(rng)}"]
    return "<tool_response>\n" + "\n".join(lines) + "\n</tool_response>"


def _skill(rng: random.Random) -> str:
    return "_".join(_one(rng, kind) for kind in ("verbs", "links", "things"))


def _call(rng: random.Random) -> str:
    arguments: dict[str, object] = {}
    if rng.random() < 0.6:
        name = _one(rng, "moves")
    elif rng.random() < 0.7:
        name = _skill(rng)
        arguments = {"color": _one(rng, "colors"), "kind": _one(rng, "types"), "steps": rng.randint(1, 9)}
    else:
        name = _one(rng, "edits")
        code = SAMPLE["code"].split("\n\n\n")
        arguments = {"name": _skill(rng), "code": rng.choice(code), "public": rng.random() < 0.5}
    return json.dumps({"name": name, "arguments": arguments})


def _schema(rng: random.Random) -> str:
    properties = {_one(rng, "things"): {"type": _one(rng, "json_types")}}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    name, doc = _skill(rng), rng.choice(SAMPLE["prose"].split(". "))
    function = {"name": name, "description": doc, "parameters": {**parameters, "additionalProperties": False}}
    return json.dumps({"type": "function", "function": function})


def _crafter(rng: random.Random) -> str:
    seen = rng.sample(SAMPLE["resources"] + SAMPLE["creatures"], 3)
    lines = ["You see:"]
    lines += [f"- {thing} {rng.randint(1, 9)} steps to your {_one(rng, 'directions')}" for thing in seen]
    lines += ["Your status:"]
    lines += [f"- {vital}: {rng.randint(1, 9)}/9" for vital in ("health", "food", "energy")]
    return "\n".join([*lines, "Your inventory:", f"- {_one(rng, 'resources')}: 1"])


def _science(rng: random.Random) -> str:
    place, vessel, material = (_one(rng, kind) for kind in ("places", "vessels", "materials"))
    return (
        f"You move to the {place}. This room is called the {place}. In it, you see: a {vessel} "
        f"(containing {material}), a substance called {material}. A door to the {_one(rng, 'places')} "
        f"(that is open). The {vessel} is now activated. The temperature of the {material} is "
        f"{rng.randint(1, 200)} degrees celsius."
    )
