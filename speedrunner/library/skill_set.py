"""A library as it is read: by the actor as tools, by an inducer as text, by the sandbox as a module."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from envs import Primitive
from serving.tokens.tools import ToolSpec
from speedrunner.library.preamble import users
from speedrunner.library.rules import suggestion
from speedrunner.library.skill_parser import parse_preamble, parse_skill
from speedrunner.library.skill_source import Definition, InvalidSkill
from speedrunner.store.records import Module, Skill

HEADER = "from __future__ import annotations"
"""First line of every library module: annotations are documentation there and are never evaluated."""


@dataclass(frozen=True)
class SkillSet:
    """The skills of one policy over one environment's primitives. Nothing in it runs a skill's code.

    Attributes:
        primitives: what skills may call besides each other.
        skills: in the order of their definition.
        preamble: the module's imports, constants and classes; what no skill mentions any more is dropped.
    """

    primitives: tuple[Primitive, ...]
    skills: tuple[Skill, ...] = ()
    preamble: str = ""

    @property
    def by_name(self) -> dict[str, Skill]:
        """The skills by name, in their order."""
        return {each.name: each for each in self.skills}

    @property
    def shared(self) -> Mapping[str, Definition]:
        """The preamble's imports, constants and classes by name."""
        return parse_preamble(self.preamble)

    @property
    def public(self) -> tuple[Skill, ...]:
        """The actor's skills, the longest unchanged first, so that an edit leaves the prompt's beginning."""
        shown = (each for each in self.skills if each.public)
        return tuple(sorted(shown, key=lambda each: (each.edited, each.name)))

    def skill(self, name: str) -> Skill:
        """Return a skill. Raises `InvalidSkill`, which names near matches, where there is none."""
        if name not in self.by_name:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, self.by_name)}")
        return self.by_name[name]

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return what the actor may call: the primitives, then the public skills."""
        given = self.primitives
        primitives = (ToolSpec.from_signature(each.name, each.signature, each.doc) for each in given)
        return (*primitives, *(self.tool(each) for each in self.public))

    def tool(self, skill: Skill) -> ToolSpec:
        """Return a skill as the actor would see it."""
        signature = parse_skill(skill.source, self.preamble).signature
        return ToolSpec.from_signature(skill.name, signature, skill.doc)

    def signatures(self) -> dict[str, inspect.Signature]:
        """Return the skills' parameters, with real types."""
        return {each.name: parse_skill(each.source, self.preamble).signature for each in self.skills}

    def call_graph(self) -> dict[str, tuple[str, ...]]:
        """Return for each skill the skills and primitives that it names, sorted."""
        callable_names = {*self.by_name, *(each.name for each in self.primitives)}
        return {
            each.name: tuple(sorted(callable_names & parse_skill(each.source, self.preamble).reads.keys()))
            for each in self.skills
        }

    def callers(self, name: str) -> list[str]:
        """Return the other skills, and the shared classes, that call a skill."""
        skills = [caller for caller, called in self.call_graph().items() if name in called and caller != name]
        classes = [each.name for each in self.shared.values() if name in each.reads]
        return skills + [each for each in classes if set(self.users(each)) != {name}]

    def users(self, *names: str) -> list[str]:
        """Return the skills that mention one of these definitions, also through another one."""
        return users(names, self.shared.values(), self.skills)

    def show(self, name: str) -> str:
        """Return the source of a skill, or of a constant or class, under a comment on its place.

        Raises:
            InvalidSkill: there is nothing of the name.
        """
        if name in self.shared and name not in self.by_name:
            used = ", ".join(self.users(name)) or "no skill"
            return f"# shared, used by {used}\n{self.shared[name].source}"
        skill = self.skill(name)
        callers = ", ".join(self.callers(name)) or "no other skill"
        return f"# {'public' if skill.public else 'private'}, called by {callers}\n{skill.source}"

    def module(self) -> Module:
        """The library as it runs."""
        public = tuple(each.name for each in self.public)
        private = tuple(each.name for each in self.skills if not each.public)
        return Module(self.module_source(), public, private)

    def module_source(self) -> str:
        """Return the library as one Python module; primitives are expected among its globals."""
        head = f"{HEADER}\n\n{self.preamble}".rstrip()
        return "\n\n\n".join([head, *(each.source for each in self.skills)]) + "\n"
