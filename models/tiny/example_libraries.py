"""Skill libraries for the actor's corpus: their names and words vary, what they are good for is known.

The skills' bodies are not run: what a skill does is played by the teacher (`episodes`), since what the actor
reads of it is its tool and its reply.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from envs import TextEnv
from models.tiny.teachers.bot import SkillUse
from speedrunner.methods import ActorSpec, Library, Policy, Skill

WORDINGS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("wordings.yaml").read_text("utf-8"))

MIXES = (
    ("whole",),
    ("whole",),
    ("both",),
    ("whole", "go to"),
    ("whole", "pick up", "go to"),
    ("whole", "pick up", "go to"),
    ("pick up", "go to"),
    ("pick up", "go to"),
    ("pick up", "go to"),
    ("go to",),
    ("pick up",),
    (),
)
"""What the libraries of the corpus are good for."""


@dataclass(frozen=True)
class Skilled:
    """What an actor with skills is told, and what they are good for, the best first."""

    spec: ActorSpec
    uses: tuple[SkillUse, ...]


def composed(rng: random.Random, env: TextEnv) -> Skilled:
    """Draw a library: a mix of useful skills, and now and then one that is of no use."""
    kinds = [*rng.choice(MIXES)]
    if not kinds or rng.random() < 0.25:
        kinds.append("useless")
    written = {kind: _function(rng, kind) for kind in kinds}
    names = [name for name, _ in written.values()]
    if len({*names}) < len(names):
        return composed(rng, env)
    shown = rng.sample(sorted(written), len(written))  # they are told in the order of their last edits
    skills = tuple(
        Skill(name=written[kind][0], public=True, created=1, edited=place + 1)
        for place, kind in enumerate(shown)
    )
    module = "\n\n\n".join(source for _, source in written.values()) + "\n"
    library = Library(env.primitives).of(Policy(version=1, module=module, skills=skills))
    tools = {tool.name: tool for tool in library.tools()}
    uses = (
        SkillUse(tools[written[kind][0]], whole=kind in ("whole", "both"), verb=kind)
        for kind in ("whole", "both", "pick up", "go to")
        if kind in written
    )
    return Skilled(ActorSpec(library), tuple(uses))


def _function(rng: random.Random, kind: str) -> tuple[str, str]:
    """A skill's name and source."""
    words = WORDINGS[kind]
    name = "_".join(rng.choice(part) for part in words["names"])
    given = rng.choice(words["parameters"])
    parameters = [each for each in (given if isinstance(given, list) else [given]) if each]
    pieces = [rng.choice(part) for part in words["docs"]]
    doc = f"{pieces[0]} {''.join(pieces[1:])}".replace("  ", " ")
    signature = ", ".join(f"{each}: str" for each in parameters)
    return name, f'def {name}({signature}) -> str:\n    """{doc}"""\n    return go_forward()'
