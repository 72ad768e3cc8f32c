"""The skill library: an immutable set of functions that an inducer edits, one edit at a time."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import msgspec

from envs import Primitive
from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from speedrunner.library.preamble import preamble_for
from speedrunner.library.rules import (
    MODULE_LIMIT,
    Met,
    first_line,
    name_problems,
    shared_changes,
    suggestion,
    unknown_names,
)
from speedrunner.library.skill_parser import parse_edit, parse_module, parse_preamble, parse_skill
from speedrunner.library.skill_rename import renamed
from speedrunner.library.skill_set import SkillSet
from speedrunner.library.skill_source import InvalidSkill, ModuleSource, SkillSource
from speedrunner.store.records import Skill


def _accept(spec: ToolSpec) -> None:
    """Check nothing."""


@dataclass(frozen=True)
class Library(SkillSet):
    """A set of skills that can be edited. Edits return a new library.

    Each edit is validated as a whole, so that a library is valid at every moment. What only running can
    tell, whether its classes can be defined, is for `speedrunner.library.loading`.

    Attributes:
        check: called with each public skill's tool spec when it is written; raises `InvalidTool` where
            the model in use could not call it.
    """

    check: Callable[[ToolSpec], None] = field(default=_accept, repr=False, compare=False)

    @classmethod
    def of_module(
        cls, primitives: tuple[Primitive, ...], source: str, check: Callable[[ToolSpec], None] = _accept
    ) -> Library:
        """Read a whole module, as if its functions were written one after another.

        Functions whose names begin with an underscore are private.

        Raises:
            InvalidSkill: with every problem found, in the order of lines.
        """
        parsed = parse_module(source)
        public = {each.name for each in parsed.functions if not each.name.startswith("_")}
        return cls(primitives, check=check)._with(parsed, public, sleep=0)

    def write(self, source: str, *, public: bool, sleep: int) -> Library:
        """Add a function, or replace the one of the same name.

        Args:
            source: one typed, documented function; imports, constants and classes before it join the
                preamble.
            public: whether the actor may call it.
            sleep: number of the sleep that edits.

        Returns:
            The new library; this one when the edit changes nothing.

        Raises:
            InvalidSkill: with every problem found.
        """
        parsed = parse_edit(source, self.preamble)
        return self._with(parsed, {each.name for each in parsed.functions} if public else set(), sleep)

    def edit(self, name: str, old: str, new: str, *, sleep: int) -> Library:
        """Replace a piece of the text of a skill, or of a shared constant or class.

        Args:
            old: the piece, which must occur exactly once.

        Raises:
            InvalidSkill: there is nothing of the name, the piece is not found, or what results is not valid.
        """
        skill = self.by_name.get(name)
        if skill is not None:
            parsed = parse_edit(_replaced(name, skill.source, old, new), self.preamble)
            if found := [each.name for each in parsed.functions if each.name != name]:
                raise InvalidSkill(f"the edit would turn {name} into {found[0]}; rename it instead")
            return self._with(parsed, {name} if skill.public else set(), sleep)
        if name not in self.shared:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, {*self.by_name, *self.shared})}")
        source = _replaced(name, self.shared[name].source, old, new)
        if source == self.shared[name].source:
            return self
        definitions = parse_preamble(source)
        if set(definitions) != {name}:
            raise InvalidSkill(f"the edit would turn {name} into {', '.join(definitions) or 'nothing'}")
        return self._with(ModuleSource(definitions, ()), set(), sleep, shared_too=True)

    def rename(self, name: str, new_name: str, *, sleep: int) -> Library:
        """Rename a skill, and with it every call of it. Docstrings and comments stay as they are.

        Raises:
            InvalidSkill: there is no such skill, the name is taken or none, or a skill uses one of the two
                names also for something of its own.
        """
        self.skill(name)
        if not new_name.isidentifier() or keyword.iskeyword(new_name):
            raise InvalidSkill(f"{new_name!r} is no name for a function")
        if new_name in self.by_name or new_name in self.shared:
            raise InvalidSkill(f"{new_name} is already in the library; choose another name")
        skills = []
        for skill in self.skills:
            called = name in parse_skill(skill.source, self.preamble).reads
            if called or skill.name == name:
                source = renamed(skill.source, name, new_name, skill.name)
                own = new_name if skill.name == name else skill.name
                skill = msgspec.structs.replace(skill, name=own, source=source, edited=sleep)
            skills.append(skill)
        definitions = [
            renamed(each.source, name, new_name, each.name) if name in each.reads else each.source
            for each in self.shared.values()
        ]
        library = replace(self, skills=tuple(skills), preamble="\n".join(definitions))
        parsed = parse_edit(library.by_name[new_name].source, library.preamble)
        parsed.check(*name_problems(parsed, self._met()))
        library._check_tools({new_name})
        return library

    def set_visibility(self, name: str, *, public: bool, sleep: int) -> Library:
        """Show a skill to the actor, or hide it.

        Raises:
            InvalidSkill: there is no such skill, or the model in use could not call it.
        """
        skill = self.skill(name)
        if skill.public == public:
            return self
        library = self._replacing([msgspec.structs.replace(skill, public=public, edited=sleep)])
        library._check_tools({name})
        return library

    def delete(self, name: str) -> Library:
        """Remove a skill.

        Raises:
            InvalidSkill: there is no such skill, or others call it.
        """
        self.skill(name)
        if callers := self.callers(name):
            text = f"{name} is called by {', '.join(callers)}; change or delete these first"
            if ring := self._called(name).intersection(callers):
                first = min(ring)
                text += f" ({first} and {name} call each other: edit {first} so that it does not call {name})"
            raise InvalidSkill(text)
        remaining = tuple(each for each in self.skills if each.name != name)
        return replace(self, skills=remaining, preamble=preamble_for(remaining, self.shared))

    def _with(
        self, parsed: ModuleSource, public: set[str], sleep: int, *, shared_too: bool = False
    ) -> Library:
        """Return this library with the functions and definitions of a text.

        Args:
            public: functions that the actor may call.
            shared_too: whether definitions may change that other skills use.
        """
        met = self._met()
        parsed.check(
            *name_problems(parsed, met),
            *unknown_names(parsed, met),
            *(() if shared_too else shared_changes(parsed, met)),
        )
        edited = self._replacing(
            _skill(each, self.by_name.get(each.name), each.name in public, sleep) for each in parsed.functions
        )
        preamble = preamble_for(edited.skills, {**self.shared, **parsed.definitions})
        edited = replace(edited, preamble=preamble)
        if shared_too:
            users = edited.users(*parsed.definitions)
            edited._check_uses(users)
            edited = edited._replacing(
                msgspec.structs.replace(edited.by_name[name], edited=sleep) for name in users
            )
        if (size := len(edited.module_source())) > MODULE_LIMIT:
            raise InvalidSkill(f"the library would have {size} characters; {MODULE_LIMIT} are allowed")
        edited._check_tools({each.name for each in edited.skills if self.by_name.get(each.name) != each})
        return edited

    def _replacing(self, skills: Iterable[Skill]) -> Library:
        """Return this library with these in the place of those of their names."""
        return replace(self, skills=tuple({**self.by_name, **{each.name: each for each in skills}}.values()))

    def _called(self, name: str) -> set[str]:
        """Everything that a skill calls, also through others."""
        graph = self.call_graph()
        called: set[str] = set()
        waiting = [name]
        while waiting:
            new = set(graph.get(waiting.pop(), ())) - called
            called |= new
            waiting.extend(new)
        return called

    def _met(self) -> Met:
        return Met([each.name for each in self.primitives], self.by_name.keys(), self.shared, self.users)

    def _check_uses(self, names: Iterable[str]) -> None:
        """Raise `InvalidSkill` where skills, unchanged themselves, do not suit a changed definition."""
        problems: list[str] = []
        for name in names:
            try:
                parse_skill(self.by_name[name].source, self.preamble)
            except InvalidSkill as error:
                problems += (f"{name}, {line}" for line in str(error).splitlines())
        if problems:
            raise InvalidSkill("\n".join(problems))

    def _check_tools(self, names: set[str]) -> None:
        """Raise `InvalidSkill` where the actor could not call one of these skills that is public."""
        problems: list[str] = []
        for skill in self.skills:
            if skill.public and skill.name in names:
                try:
                    self.check(self.tool(skill))
                except InvalidTool as error:
                    problems.append(f"{skill.name} cannot be offered as a tool: {error}")
        if problems:
            raise InvalidSkill("\n".join(problems))


def _skill(function: SkillSource, old: Skill | None, public: bool, sleep: int) -> Skill:
    new = Skill(
        name=function.name,
        source=function.source,
        doc=function.doc,
        public=public,
        created=old.created if old else sleep,
        edited=sleep,
    )
    unchanged = old is not None and msgspec.structs.replace(new, edited=old.edited) == old
    return old if unchanged and old is not None else new


def _replaced(name: str, text: str, old: str, new: str) -> str:
    """Return the text with the one occurrence of a piece replaced. Raises `InvalidSkill`."""
    count = text.count(old) if old else 0
    if count == 1:
        return text.replace(old, new)
    if count:
        more = "give more of what is around it"
        raise InvalidSkill(f"the text to replace occurs {count} times in {name}; {more}")
    wanted = first_line(old.strip())
    near = difflib.get_close_matches(wanted, [line.strip() for line in text.splitlines()], n=1)
    hint = f"; the nearest line is `{near[0]}` (spaces count, too)" if near else f"; show {name} first"
    raise InvalidSkill(f"the text to replace does not occur in {name}{hint}")
