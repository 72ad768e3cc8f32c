"""The skill library: an immutable set of functions that an inducer edits, one edit at a time."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from envs import Primitive
from serving.errors import InvalidTool
from serving.tools import ToolSpec
from speedrunner.records import Skill
from speedrunner.skill_source import (
    BUILTINS,
    FORBIDDEN_BUILTINS,
    InvalidSkill,
    SkillSource,
    parse_preamble,
    parse_skill,
)

RESERVED = frozenset({"submit_answer"})
"""Tools of the actor that are neither primitives nor skills."""

HEADER = "from __future__ import annotations"
"""First line of every library module: annotations are documentation there and are never evaluated."""


def _accept(spec: ToolSpec) -> None:
    """Check nothing."""


@dataclass(frozen=True)
class Library:
    """The skills of one policy over one environment's primitives. Edits return a new library.

    Nothing in it runs a skill's code.

    Attributes:
        primitives: what skills may call besides each other.
        skills: in the order of their definition.
        preamble: the module's imports and constants; what no skill mentions any more is dropped.
        check: called with each public skill's tool spec when it is written; raises `InvalidTool` where
            the model in use could not call it.
    """

    primitives: tuple[Primitive, ...]
    skills: tuple[Skill, ...] = ()
    preamble: str = ""
    check: Callable[[ToolSpec], None] = field(default=_accept, repr=False, compare=False)

    def write(self, source: str, *, public: bool, sleep: int) -> Library:
        """Add a function, or replace the one of the same name.

        Args:
            source: one typed, documented function; imports and constants before it join the preamble.
            public: whether the actor may call it.
            sleep: number of the sleep that edits.

        Returns:
            The new library; this one when the edit changes nothing.

        Raises:
            InvalidSkill: with every problem found.
        """
        parsed = parse_skill(source)
        preamble = {**parse_preamble(self.preamble), **parsed.preamble}
        problems = [*self._name_problems(parsed), *self._preamble_problems(parsed)]
        problems += self._unknown_names(parsed, preamble)
        if problems:
            raise InvalidSkill("\n".join(problems))
        if public:
            try:
                self.check(ToolSpec.from_signature(parsed.name, parsed.signature, parsed.doc))
            except InvalidTool as error:
                raise InvalidSkill(f"{parsed.name} cannot be offered as a tool: {error}") from error
        old = self._by_name.get(parsed.name)
        new = Skill(
            name=parsed.name,
            source=parsed.source,
            doc=parsed.doc,
            public=public,
            created=old.created if old else sleep,
            edited=sleep,
        )
        if old is not None and msgspec.structs.replace(new, edited=old.edited) == old:
            new = old
        edited = replace(self, skills=tuple({**self._by_name, new.name: new}.values()))
        return edited._with_preamble(preamble)

    def delete(self, name: str) -> Library:
        """Remove a skill.

        Raises:
            InvalidSkill: there is no such skill, or others call it.
        """
        self._get(name)
        if callers := self._callers(name):
            raise InvalidSkill(f"{name} is called by {', '.join(callers)}; change or delete these first")
        remaining = tuple(each for each in self.skills if each.name != name)
        return replace(self, skills=remaining)._with_preamble(parse_preamble(self.preamble))

    def show(self, name: str) -> str:
        """Return a skill's source under a comment on its place in the library.

        Raises:
            InvalidSkill: there is no such skill.
        """
        skill = self._get(name)
        callers = ", ".join(self._callers(name)) or "no other skill"
        return f"# {'public' if skill.public else 'private'}, called by {callers}\n{skill.source}"

    @property
    def public(self) -> tuple[Skill, ...]:
        """The actor's skills, the longest unchanged first, so that an edit leaves the prompt's beginning."""
        shown = (each for each in self.skills if each.public)
        return tuple(sorted(shown, key=lambda each: (each.edited, each.name)))

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return what the actor may call: the primitives, then the public skills."""
        signatures = self.signatures()
        primitives = [(each.name, each.signature, each.doc) for each in self.primitives]
        skills = [(each.name, signatures[each.name], each.doc) for each in self.public]
        return tuple(ToolSpec.from_signature(*each) for each in (*primitives, *skills))

    def signatures(self) -> dict[str, inspect.Signature]:
        """Return the skills' parameters, with real types."""
        return {each.name: parse_skill(each.source).signature for each in self.skills}

    def call_graph(self) -> dict[str, tuple[str, ...]]:
        """Return for each skill the skills and primitives that it names, sorted."""
        callable_names = {*self._by_name, *self._primitive_names}
        return {
            each.name: tuple(sorted(callable_names & parse_skill(each.source).reads.keys()))
            for each in self.skills
        }

    def module_source(self) -> str:
        """Return the library as one Python module; primitives are expected among its globals."""
        head = f"{HEADER}\n\n{self.preamble}".rstrip()
        return "\n\n\n".join([head, *(each.source for each in self.skills)]) + "\n"

    @property
    def _by_name(self) -> dict[str, Skill]:
        return {each.name: each for each in self.skills}

    @property
    def _primitive_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.primitives)

    def _get(self, name: str) -> Skill:
        if name not in self._by_name:
            raise InvalidSkill(f"there is no skill {name}{_suggestion(name, self._by_name)}")
        return self._by_name[name]

    def _callers(self, name: str) -> list[str]:
        return [caller for caller, called in self.call_graph().items() if name in called and caller != name]

    def _with_preamble(self, statements: Mapping[str, str]) -> Library:
        """Return this library with those statements that its skills mention, imports first."""
        mentioned = {name for skill in self.skills for name in parse_skill(skill.source).mentions}
        kept = [statement for name, statement in statements.items() if name in mentioned]
        imports = sorted(each for each in kept if _is_import(each))
        constants = [each for each in kept if not _is_import(each)]
        return replace(self, preamble="\n".join([*imports, *constants]))

    def _name_problems(self, parsed: SkillSource) -> Iterable[str]:
        for name in (parsed.name, *parsed.preamble):
            if taken := self._taken(name):
                yield f"{name} is already {taken}; choose another name"
        for name in parsed.preamble:
            if name in self._by_name or name == parsed.name:
                yield f"{name} is already a skill; choose another name for the import or constant"
        if parsed.name in parse_preamble(self.preamble):
            yield f"{parsed.name} is already an import or a constant of the library; choose another name"

    def _taken(self, name: str) -> str | None:
        if name in self._primitive_names:
            return "a primitive"
        if name in RESERVED:
            return "a tool of the actor"
        if name in BUILTINS or name in FORBIDDEN_BUILTINS:
            return "a Python builtin"
        return None

    def _preamble_problems(self, parsed: SkillSource) -> Iterable[str]:
        """Imports and constants are shared, so one skill's edit must not change another's meaning."""
        current = parse_preamble(self.preamble)
        for name, statement in parsed.preamble.items():
            if current.get(name, statement) == statement:
                continue
            others = [
                each.name
                for each in self.skills
                if each.name != parsed.name and name in parse_skill(each.source).mentions
            ]
            if others:
                yield f"{name} is already `{current[name]}`, used by {', '.join(others)}; choose another name"

    def _unknown_names(self, parsed: SkillSource, preamble: Mapping[str, str]) -> Iterable[str]:
        known = {*self._primitive_names, *self._by_name, *preamble, parsed.name}
        for name, line in sorted(parsed.reads.items(), key=lambda each: each[1]):
            if name in FORBIDDEN_BUILTINS and name not in known:
                yield f"line {line}: {name} is not available to skills"
            elif name not in known and name not in BUILTINS:
                yield f"line {line}: {name} is not defined{_suggestion(name, known)}"


def _is_import(statement: str) -> bool:
    return statement.startswith(("import ", "from "))


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    there_are = ", ".join(sorted(known)) or "none"
    return f"; there are {there_are}"
