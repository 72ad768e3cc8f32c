"""Skill libraries for the actor's corpus, with varied names and wordings and known uses.

The skills' bodies never run. The actor sees only a skill's tool and its reply, so the teacher plays the
skill's actions (`actor_examples.episodes`).
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


@dataclass(frozen=True)
class Skilled:
    """An actor's specification with skills, and the uses of these skills, best first."""

    spec: ActorSpec
    uses: tuple[SkillUse, ...]


def draw_library(rng: random.Random, env: TextEnv) -> Skilled:
    """Draw a library: a mix of useful skills, sometimes with one useless skill."""
    kinds = [*rng.choice(WORDINGS["mixes"])]
    if not kinds or rng.random() < 0.25:
        kinds.append("useless")
    written = {kind: _function(rng, kind) for kind in kinds}
    names = [name for name, _ in written.values()]
    if len({*names}) < len(names):
        return draw_library(rng, env)
    shown = rng.sample(sorted(written), len(written))  # prompts list skills in the order of their last edits
    skills = tuple(
        Skill(name=written[kind][0], public=True, created=1, edited=place + 1)
        for place, kind in enumerate(shown)
    )
    module = "\n\n\n".join(source for _, source in written.values()) + "\n"
    library = Library(env.primitives).of(Policy(version=1, module=module, skills=skills))
    tools = {tool.name: tool for tool in library.tools()}
    uses = (
        SkillUse(tools[written[kind][0]], verb="" if kind in ("whole", "both") else kind)
        for kind in ("whole", "both", "pick up", "go to")
        if kind in written
    )
    return Skilled(ActorSpec(library), tuple(uses))


def _function(rng: random.Random, kind: str) -> tuple[str, str]:
    """Draw a skill's name and source."""
    words = WORDINGS[kind]
    name = "_".join(rng.choice(part) for part in words["names"])
    parameters = rng.choice(words["parameters"]).split()
    pieces = [rng.choice(part) for part in words["docs"]]
    doc = f"{pieces[0]} {''.join(pieces[1:])}".replace("  ", " ")
    signature = ", ".join(f"{each}: str" for each in parameters)
    return name, f'def {name}({signature}) -> str:\n    """{doc}"""\n    return go_forward()'
