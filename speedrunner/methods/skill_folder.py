"""Skills as documents: SpeedRunner's library, which the actor reads and does not call.

It varies the form of what is learned alone: programs as text, compared with programs as tools. As in folders
of agent skills, name and description are always in the prompt, and the body is read on demand.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from speedrunner.methods import (
    ActorSpec,
    EpisodeContext,
    Library,
    Policy,
    Task,
    Termination,
    TextEnv,
    Tool,
    Toolbox,
    render,
)
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner


def make_reader(library: Library) -> Tool:
    """Return the tool that reads a library's public skills; its calls can name no other."""

    def read_skill(name: str) -> str:
        """Read the code of a skill, with everything that it uses. `name` is its name in the list."""
        return library.excerpt(name)

    read_skill.__annotations__["name"] = Literal[tuple(skill.name for skill in library.public)]
    return read_skill


class SkillFolder(SpeedRunner):
    """SpeedRunner, with its options, and an actor that calls primitives only and reads public skills."""

    documents: ClassVar[bool] = True

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return an actor with the primitives, a list of the public skills, and a tool that reads them."""
        library = super().agent(policy, task, env, training=training).library
        if not library.public:
            return ActorSpec(library)
        skills = [library.entry(skill.name) for skill in library.public]
        return ActorSpec(
            library,
            tools=(*Library(env.primitives).tools(), *Toolbox([make_reader(library)]).specs),
            instructions=render("speedrunner.methods", "skill_folder/instructions", skills=skills),
        )

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        """Let the actor play alone; it can read skills if there are any."""
        return await context.act(spec, Toolbox([make_reader(spec.library)]) if spec.tools else None)
