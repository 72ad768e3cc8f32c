"""The skill library: an immutable set of functions that an inducer edits, one edit at a time."""

from __future__ import annotations

import difflib
import inspect
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from envs import Primitive
from serving.errors import InvalidTool
from serving.tools import ToolSpec
from speedrunner.library.rules import (
    Met,
    first_line,
    in_order,
    name_problems,
    shared_changes,
    suggestion,
    unknown_names,
)
from speedrunner.library.skill_names import mentions
from speedrunner.library.skill_rename import renamed
from speedrunner.library.skill_source import (
    Definition,
    InvalidSkill,
    ModuleSource,
    SkillSource,
    parse_edit,
    parse_module,
    parse_preamble,
    parse_skill,
)
from speedrunner.records import Skill

HEADER = "from __future__ import annotations"
"""First line of every library module: annotations are documentation there and are never evaluated."""


def _accept(spec: ToolSpec) -> None:
    """Check nothing."""


@dataclass(frozen=True)
class Library:
    """The skills of one policy over one environment's primitives. Edits return a new library.

    Each edit is validated as a whole, so that a library is valid at every moment. Nothing in it runs a
    skill's code.

    Attributes:
        primitives: what skills may call besides each other.
        skills: in the order of their definition.
        preamble: the module's imports, constants and classes; what no skill mentions any more is dropped.
        check: called with each public skill's tool spec when it is written; raises `InvalidTool` where
            the model in use could not call it.
    """

    primitives: tuple[Primitive, ...]
    skills: tuple[Skill, ...] = ()
    preamble: str = ""
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
        return self._with(parsed, {parsed.functions[0].name} if public else set(), sleep)

    def edit(self, name: str, old: str, new: str, *, sleep: int) -> Library:
        """Replace a piece of the text of a skill, or of a shared constant or class.

        Args:
            old: the piece, which must occur exactly once.

        Raises:
            InvalidSkill: there is nothing of the name, the piece is not found, or what results is not valid.
        """
        shared = parse_preamble(self.preamble)
        is_skill = name in self._by_name
        if not is_skill and name not in shared:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, {*self._by_name, *shared})}")
        text = self._by_name[name].source if is_skill else shared[name].source
        changed = _replaced(name, text, old, new)
        if is_skill:
            parsed = parse_edit(changed, self.preamble)
            if (found := parsed.functions[0].name) != name:
                raise InvalidSkill(f"the edit would turn {name} into {found}; rename it instead")
            return self._with(parsed, {name} if self._by_name[name].public else set(), sleep)
        definitions = parse_preamble(changed)
        if set(definitions) != {name}:
            raise InvalidSkill(f"the edit would turn {name} into {', '.join(definitions) or 'nothing'}")
        return self._with(ModuleSource(definitions, ()), set(), sleep, shared_too=True)

    def rename(self, name: str, new_name: str, *, sleep: int) -> Library:
        """Rename a skill, and with it every call of it. Docstrings and comments stay as they are.

        Raises:
            InvalidSkill: there is no such skill, the name is taken or none, or a skill uses one of the two
                names also for something of its own.
        """
        self._get(name)
        if not new_name.isidentifier() or keyword.iskeyword(new_name):
            raise InvalidSkill(f"{new_name!r} is no name for a function")
        shared = parse_preamble(self.preamble)
        if new_name in self._by_name or new_name in shared:
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
            for each in shared.values()
        ]
        library = replace(self, skills=tuple(skills), preamble="\n".join(definitions))
        parsed = parse_edit(library._by_name[new_name].source, library.preamble)
        parsed.check(*name_problems(parsed, self._met()))
        if problems := list(library._tool_problems({new_name})):
            raise InvalidSkill("\n".join(problems))
        return library

    def set_visibility(self, name: str, *, public: bool, sleep: int) -> Library:
        """Show a skill to the actor, or hide it.

        Raises:
            InvalidSkill: there is no such skill, or the model in use could not call it.
        """
        if self._get(name).public == public:
            return self
        shown = {
            **self._by_name,
            name: msgspec.structs.replace(self._by_name[name], public=public, edited=sleep),
        }
        library = replace(self, skills=tuple(shown.values()))
        if problems := list(library._tool_problems({name})):
            raise InvalidSkill("\n".join(problems))
        return library

    def delete(self, name: str) -> Library:
        """Remove a skill.

        Raises:
            InvalidSkill: there is no such skill, or others call it.
        """
        self._get(name)
        if callers := self.callers(name):
            raise InvalidSkill(f"{name} is called by {', '.join(callers)}; change or delete these first")
        remaining = tuple(each for each in self.skills if each.name != name)
        return replace(self, skills=remaining)._with_preamble(parse_preamble(self.preamble))

    def show(self, name: str) -> str:
        """Return the source of a skill, or of a constant or class, under a comment on its place.

        Raises:
            InvalidSkill: there is nothing of the name.
        """
        shared = parse_preamble(self.preamble)
        if name in shared and name not in self._by_name:
            users = ", ".join(self._users({name})) or "no skill"
            return f"# shared, used by {users}\n{shared[name].source}"
        skill = self._get(name)
        callers = ", ".join(self.callers(name)) or "no other skill"
        return f"# {'public' if skill.public else 'private'}, called by {callers}\n{skill.source}"

    @property
    def public(self) -> tuple[Skill, ...]:
        """The actor's skills, the longest unchanged first, so that an edit leaves the prompt's beginning."""
        shown = (each for each in self.skills if each.public)
        return tuple(sorted(shown, key=lambda each: (each.edited, each.name)))

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
        callable_names = {*self._by_name, *self._primitive_names}
        return {
            each.name: tuple(sorted(callable_names & parse_skill(each.source, self.preamble).reads.keys()))
            for each in self.skills
        }

    def callers(self, name: str) -> list[str]:
        """Return the other skills, and the shared classes, that call a skill."""
        skills = [caller for caller, called in self.call_graph().items() if name in called and caller != name]
        classes = [each.name for each in parse_preamble(self.preamble).values() if name in each.reads]
        return skills + [each for each in classes if set(self._users({each})) != {name}]

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

    def _met(self) -> Met:
        return Met(
            self._primitive_names,
            self._by_name.keys(),
            parse_preamble(self.preamble),
            lambda name: self._users({name}),
        )

    def _get(self, name: str) -> Skill:
        if name not in self._by_name:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, self._by_name)}")
        return self._by_name[name]

    def _with(
        self, parsed: ModuleSource, public: set[str], sleep: int, *, shared_too: bool = False
    ) -> Library:
        """Return this library with the functions and definitions of a text.

        Args:
            public: functions that the actor may call.
            shared_too: whether definitions may change that other skills use.
        """
        definitions = {**parse_preamble(self.preamble), **parsed.definitions}
        met = self._met()
        parsed.check(
            *name_problems(parsed, met),
            *unknown_names(parsed, met),
            *(() if shared_too else shared_changes(parsed, met)),
        )
        skills = self._by_name
        for function in parsed.functions:
            name = function.name
            skills[name] = _skill(function, skills.get(name), name in public, sleep)
        edited = replace(self, skills=tuple(skills.values()))._with_preamble(definitions)
        changed = {name for name, skill in skills.items() if self._by_name.get(name) != skill}
        problems: list[str] = []
        if shared_too:
            users = edited._users(parsed.definitions.keys())
            problems += edited._use_problems(users)
            marked = {name: msgspec.structs.replace(edited._by_name[name], edited=sleep) for name in users}
            edited = replace(edited, skills=tuple({**edited._by_name, **marked}.values()))
            changed |= set(users)
        if problems := problems or list(edited._tool_problems(changed)):
            raise InvalidSkill("\n".join(problems))
        return edited

    def _users(self, names: Iterable[str]) -> list[str]:
        """Skills that mention one of these definitions, also through another one."""
        shared = parse_preamble(self.preamble)
        reached = set(names)
        while more := {each.name for each in shared.values() if mentions(each.source) & reached} - reached:
            reached |= more
        return [each.name for each in self.skills if mentions(each.source) & reached]

    def _use_problems(self, names: Iterable[str]) -> Iterator[str]:
        """What skills that did not change themselves have against a changed definition."""
        for name in names:
            try:
                parse_skill(self._by_name[name].source, self.preamble)
            except InvalidSkill as error:
                yield from (f"{name}, {line}" for line in str(error).splitlines())

    def _tool_problems(self, names: Iterable[str]) -> Iterator[str]:
        """What keeps the actor from calling those of these skills that are public."""
        for skill in self.skills:
            if skill.public and skill.name in names:
                try:
                    self.check(self.tool(skill))
                except InvalidTool as error:
                    yield f"{skill.name} cannot be offered as a tool: {error}"

    def _with_preamble(self, definitions: Mapping[str, Definition]) -> Library:
        """Return this library with those definitions that its skills mention, what others need first."""
        wanted: set[str] = set()
        more = {name for skill in self.skills for name in mentions(skill.source)}
        while more:
            wanted |= more
            found = (mentions(each.source) for each in definitions.values() if each.name in more)
            more = {name for names in found for name in names} - wanted
        kept = {name: each for name, each in definitions.items() if name in wanted}
        imports = sorted(each.source for each in kept.values() if each.kind == "import")
        constants = [each.source for each in kept.values() if each.kind == "constant"]
        classes = [kept[name].source for name in in_order(kept)]
        return replace(self, preamble="\n".join([*imports, *constants, *classes]))


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
