"""The skill library: one Python module, edited one edit at a time."""

from __future__ import annotations

import ast
import difflib
import inspect
import keyword
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from envs import Primitive
from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from speedrunner.library.checks import problems_of
from speedrunner.library.definition import (
    Definition,
    arrange_definitions,
    check_size,
    compile_source,
    find_dependencies,
    module_text,
    read_module,
    read_text,
    tidy_source,
)
from speedrunner.library.ranking import score_bm25
from speedrunner.library.rules import (
    NAME_LIMIT,
    SOURCE_LIMIT,
    InvalidSkill,
    Problem,
    refuse,
    suggestion,
)
from speedrunner.library.signature import read_signature
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Edit, Module, Policy, Skill

EMPTY = "(the library is empty)"


@dataclass(frozen=True)
class Library:
    """A module of skills over one environment's primitives. It is immutable: an edit returns a new library.

    A skill is a typed, documented function. Imports and constants are shared by all skills. An edit returns a
    valid library or raises `InvalidSkill`; its text lists the problems for the author, one per line. No code
    of a skill runs here. In a sleep:

        return tools.library(policy).write(source, sleep=tools.sleep).policy(policy)

    Attributes:
        primitives: the primitives that skills may call, in addition to each other.
        definitions: the module: imports, constants, functions. Definitions that no function uses are left
            out.
        skills: name, visibility and history of each function.
        check: called with the tool of each public skill that changes; raises `InvalidTool` if the model in
            use could not call it.
    """

    primitives: tuple[Primitive, ...]
    definitions: tuple[Definition, ...] = ()
    skills: tuple[Skill, ...] = ()
    check: Callable[[ToolSpec], None] = field(default=lambda spec: None, repr=False, compare=False)

    def of(self, policy: Policy, *, trusted: bool = True) -> Library:
        """Return a policy's library over these primitives.

        Args:
            trusted: whether an edit produced it; if not, everything is checked again.

        Raises `InvalidPolicy`: the policy is damaged.
        """
        names = [skill.name for skill in policy.skills]
        try:
            definitions = read_module(policy.module) if trusted else tuple(read_text(policy.module))
            library = replace(self, definitions=definitions, skills=policy.skills)
            if sorted(_functions(definitions)) != sorted(names):
                raise InvalidSkill(f"its module should define {', '.join(names) or 'nothing'}")
            if not trusted:
                refuse(library._list_problems(definitions))
        except InvalidSkill as error:
            raise InvalidPolicy(f"policy v{policy.version:04d} is no valid library: {error}") from error
        return library

    def last_visible(self, count: int) -> Library:
        """Return it with at most `count` public skills: those that were added to the library last. Skills can
        still call the others."""
        public = [skill.name for skill in self.skills if skill.public]
        shown = public[max(len(public) - count, 0) :]
        skills = (msgspec.structs.replace(skill, public=skill.name in shown) for skill in self.skills)
        return replace(self, skills=tuple(skills))

    def rank(self, query: str, most: int) -> list[str]:
        """Return the names of at most `most` public skills: those whose name and docstring fit a query best,
        the best first; of equal ones the newest first."""
        public = [skill.name for skill in self.skills if skill.public]
        scores = score_bm25(query, [f"{name}\n{self.doc(name)}" for name in public])
        order = sorted(range(len(public)), key=lambda place: (scores[place], place), reverse=True)
        return [public[place] for place in order[:most]]

    def policy(self, before: Policy) -> Policy:
        """Return a policy with this library instead of its own."""
        return msgspec.structs.replace(before, module=self.source, skills=self.skills)

    @cached_property
    def by_name(self) -> Mapping[str, Skill]:
        """Return the skills by name."""
        return {skill.name: skill for skill in self.skills}

    @cached_property
    def named(self) -> Mapping[str, Definition]:
        """Return the definitions by name."""
        return {definition.name: definition for definition in self.definitions}

    @property
    def public(self) -> tuple[Skill, ...]:
        """Return the actor's skills, the longest unchanged first, so that an edit keeps the start of the
        prompt."""
        shown = (skill for skill in self.skills if skill.public)
        return tuple(sorted(shown, key=lambda skill: (skill.edited, skill.name)))

    @property
    def shared(self) -> dict[str, str]:
        """Return the texts of imports and constants by name."""
        shared = (definition for definition in self.definitions if definition.kind != "function")
        return {definition.name: definition.source for definition in shared}

    @property
    def source(self) -> str:
        """Return the module's text, which expects the primitives among its globals."""
        return module_text(self.definitions)

    def annotated_source(self, notes: str = "") -> str:
        """Return the source for readers, with a comment on each function's visibility and sleeps, then the
        policy's notes, if any."""
        functions = []
        for skill in self.skills:
            wrote = f"from sleep {skill.created}"
            if skill.edited != skill.created:
                wrote += f", edited in sleep {skill.edited}"
            visibility = "public" if skill.public else "private"
            functions.append(f"# {visibility}, {wrote}\n{self.named[skill.name].source}")
        shown_notes = f"# notes for the actor\n{notes}" if notes else ""
        parts = ["\n".join(self.shared.values()), *functions, shown_notes]
        return "\n\n\n".join(filter(None, parts)) or EMPTY

    def module(self) -> Module:
        """Return the executable module."""
        private = tuple(skill.name for skill in self.skills if not skill.public)
        return Module(self.source, tuple(skill.name for skill in self.public), private)

    def skill(self, name: str) -> Skill:
        """Return a skill. Raises `InvalidSkill` with similar names if it does not exist."""
        if name not in self.by_name:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, self.by_name)}")
        return self.by_name[name]

    def doc(self, name: str) -> str:
        """Return a skill's docstring, unindented."""
        head = self.named[name].head
        return (ast.get_docstring(head) or "").strip() if isinstance(head, ast.FunctionDef) else ""

    def entry(self, name: str) -> str:
        """Return a skill's name, parameters and docstring, for a list."""
        return f"{name}{self.signature(name)}: {self.doc(name)}"

    def show(self, name: str) -> str:
        """Return the source of a definition under a comment on its role. Raises `InvalidSkill`."""
        if name in self.shared:
            place = f"shared, used by {', '.join(self.users(name)) or 'no skill'}"
        else:
            seen = "public" if self.skill(name).public else "private"
            place = f"{seen}, called by {', '.join(self.callers(name)) or 'no other skill'}"
        return f"# {place}\n{self.named[name].source}"

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the actor's tools: the primitives, then the public skills."""
        given = [ToolSpec.from_signature(one.name, one.signature, one.doc) for one in self.primitives]
        return (*given, *(self.tool(skill.name) for skill in self.public))

    def tool(self, name: str) -> ToolSpec:
        """Return a skill as the actor would see it."""
        return ToolSpec.from_signature(name, self.signature(name), self.doc(name))

    def can_be_tool(self, name: str) -> bool:
        """Return whether a skill's parameters have types that are allowed for tools, as a public
        one's must."""
        try:
            self.tool(name)
        except InvalidTool:
            return False
        return True

    def signature(self, name: str) -> inspect.Signature:
        """Return a skill's parameters, with real types."""
        head = self.named[name].head
        assert isinstance(head, ast.FunctionDef)
        lines = self.named[name].source.split("\n")
        return read_signature(head.args, lines, is_tool=self.by_name[name].public)[0]

    def excerpt(self, *names: str, without: Collection[str] = ()) -> str:
        """Return the sources of skills and of what they use, each once, in the library's order.

        Leave out `without` and what only those use.
        """
        named = {key: value for key, value in self.named.items() if key in names or key not in without}
        needed = {used for name in names for used in find_dependencies(name, named)}
        return "\n\n\n".join(
            definition.source for definition in self.definitions if definition.name in needed
        )

    def calls(self, name: str) -> tuple[str, ...]:
        """Return the skills and primitives that a skill mentions, sorted."""
        reads = {read for read, _, _ in self.named[name].names.reads}
        return tuple(sorted(reads & (self.by_name.keys() | self._primitive_names)))

    def callers(self, name: str) -> list[str]:
        """Return the other skills that call a skill."""
        return [user for user in self.users(name) if user != name]

    def users(self, *names: str) -> list[str]:
        """Return the skills that mention one of these definitions."""
        functions = (one for one in self.definitions if one.kind == "function")
        return [function.name for function in functions if any(map(function.mentions, names))]

    def apply(self, edit: Edit, *, sleep: int) -> Library:
        """Return the library after an edit; this one if the edit changes nothing.

        Args:
            edit: from its record, in a sleep and again in a verification.
            sleep: number of the sleep that edits.

        Raises `InvalidSkill`: the library refuses the edit, or its record lacks arguments.
        """
        match edit:
            case Edit(action="write", source=str(source)):
                return self.write(source, sleep=sleep, public=edit.public)
            case Edit(action="edit", old=str(old), new=str(new)):
                return self.edit(edit.name, old, new, sleep=sleep)
            case Edit(action="rename", new_name=str(new_name)):
                return self.rename(edit.name, new_name, sleep=sleep)
            case Edit(action="visibility", public=bool(public)):
                return self.set_visibility(edit.name, public=public, sleep=sleep)
            case Edit(action="delete"):
                return self.delete(edit.name)
        raise InvalidSkill(f"the {edit.action} of {edit.name} lacks its arguments")

    def write(
        self,
        source: str,
        *,
        sleep: int,
        public: bool | Collection[str] | None = None,
    ) -> Library:
        """Add functions, or replace those with the same names.

        Args:
            source: one or more functions, with the imports and constants that the module lacks. To only add
                functions, first check that their `function_names` are not in `named`.
            sleep: number of the sleep that edits.
            public: whether the actor may call them, or the names of those that it may call. By default it may
                call those with names that do not start with an underscore.
        """
        text = _read(source)
        functions = _functions(text)
        if not functions:
            raise InvalidSkill("the source must define a function at the top level")
        if isinstance(public, bool):
            shown = dict.fromkeys(functions, public)
        else:
            shown = {name: name[0] != "_" if public is None else name in public for name in functions}
        return self._finish_edit(sleep, text=text, shown=shown, clashes=self._clashes(text))

    def edit(self, name: str, old: str, new: str, *, sleep: int) -> Library:
        """Replace a piece of the text of a skill, or of a shared import or constant.

        Args:
            old: the piece, which must occur exactly once.
        """
        if name not in self.named:
            raise InvalidSkill(f"there is no skill {name}{suggestion(name, self.named)}")
        is_shared = name in self.shared
        text = _read(_replace_once(name, self.named[name].source, old, new))
        made = [one.name for one in text] if is_shared else _functions(text)
        if made != [name]:
            advice = "" if is_shared else "; rename it instead"
            raise InvalidSkill(f"the edit would turn {name} into {', '.join(made) or 'nothing'}{advice}")
        return self._finish_edit(sleep, text=text, clashes=() if is_shared else self._clashes(text))

    def rename(self, name: str, new_name: str, *, sleep: int) -> Library:
        """Rename a skill and every call of it. Docstrings and comments stay as they are."""
        skill = self.skill(name)
        if len(new_name) > NAME_LIMIT:
            raise InvalidSkill(f"the new name has {len(new_name)} characters; {NAME_LIMIT} are allowed")
        if not new_name.isidentifier() or keyword.iskeyword(new_name):
            raise InvalidSkill(f"{new_name!r} is not a valid function name")
        if new_name in self.named:
            raise InvalidSkill(f"{new_name} is already in the library; choose another name")
        users = [one for one in self.definitions if one.name == name or one.mentions(name)]
        changed = {user.name: user.renamed(name, new_name) for user in users}
        skills = {**self.by_name, name: msgspec.structs.replace(skill, name=new_name)}
        definitions = [changed.get(one.name, one) for one in self.definitions]
        renamed = replace(self, skills=tuple(skills.values()))
        return renamed._finish_edit(sleep, definitions, text=[changed[name]])

    def set_visibility(self, name: str, *, public: bool, sleep: int) -> Library:
        """Show a skill to the actor, or hide it."""
        self.skill(name)
        return self._finish_edit(sleep, shown={name: public})

    def delete(self, name: str) -> Library:
        """Remove a skill that no other one calls."""
        skill = self.skill(name)
        if callers := self.callers(name):
            raise InvalidSkill(f"{name} is called by {', '.join(callers)}; change or delete these first")
        return self._finish_edit(skill.edited, [one for one in self.definitions if one.name != name])

    def _finish_edit(
        self,
        sleep: int,
        definitions: Sequence[Definition] | None = None,
        *,
        shown: Mapping[str, bool] = {},
        text: Sequence[Definition] = (),
        clashes: Iterable[Problem] = (),
    ) -> Library:
        """Return a checked, ordered library after an edit; this library if nothing changes.

        Args:
            definitions: all definitions; by default this library's, replaced by those of `text`.
            shown: new visibility of functions.
            text: the definitions that come from an author's text; messages give their lines.
            clashes: conflicts between the text and this library.
        """
        if definitions is None:
            definitions = [*{**self.named, **{one.name: one for one in text}}.values()]
        edited = replace(self, definitions=tuple(definitions))
        changed = {name for name, definition in edited.named.items() if self.named.get(name) != definition}
        changed.update(edited.users(*changed & self.shared.keys()))
        skills: dict[str, Skill] = {}
        renewed: list[str] = []
        for name in _functions(edited.definitions):
            old = self.by_name.get(name)
            public = shown.get(name, old is not None and old.public)
            if old is None or old.public != public or name in changed:
                renewed.append(name)
                old = Skill(name=name, public=public, created=old.created if old else sleep, edited=sleep)
            skills[name] = old
        edited = replace(edited, skills=tuple(skills.values()))

        problems = {
            Problem(definition.line + line - 1, why)
            for definition in text
            for line, why in edited._problems(definition)
        }
        lines = [f"line {line}: {why}" for line, why in sorted(problems.union(clashes))]
        written = set(text)
        others = [one for one in edited.definitions if one.name in changed and one not in written]
        refuse(lines + edited._list_problems(others))
        edited = replace(edited, definitions=arrange_definitions(edited.definitions))
        check_size(edited.source)
        refuse(edited._list_refused_tools(renewed))
        return edited if edited != self else self

    def _list_refused_tools(self, names: Collection[str]) -> list[str]:
        problems: list[str] = []
        for name in (skill.name for skill in self.public if skill.name in names):
            try:
                self.check(self.tool(name))
            except InvalidTool as error:
                problems.append(f"{name} cannot be offered as a tool: {error}")
        return problems

    def _problems(self, definition: Definition) -> Iterator[Problem]:
        skill = self.by_name.get(definition.name)
        is_tool = definition.kind == "function" and skill is not None and skill.public
        return problems_of(definition, self.named, self._primitive_names, is_tool=is_tool)

    def _list_problems(self, definitions: Iterable[Definition]) -> list[str]:
        return [
            f"{definition.name}, line {line}: {why}"
            for definition in definitions
            for line, why in sorted(self._problems(definition))
        ]

    def _clashes(self, text: list[Definition]) -> Iterator[Problem]:
        """Yield conflicts of a text's definitions: names in use, or changes to something that others use."""
        written = {definition.name: definition for definition in reversed(text)}
        for new in text:
            first = written[new.name]
            if first is not new and "function" in (new.kind, first.kind):
                yield Problem(new.line, f"{new.name} is defined twice; choose another name")
            now = self.named.get(new.name, new)
            others = [name for name in self.users(new.name) if name not in written] if now != new else []
            if (now.kind == "function") != (new.kind == "function"):
                what = "a skill" if now.kind == "function" else "an import or a constant"
                yield Problem(new.line, f"{new.name} is already {what}; choose another name")
            elif now.kind != "function" and others:
                used = f"{new.name} is already `{_first_line(now.source)}`, used by {', '.join(others)}"
                yield Problem(new.line, f"{used}; choose another name, or edit {new.name} itself")

    @cached_property
    def _primitive_names(self) -> frozenset[str]:
        return frozenset(primitive.name for primitive in self.primitives)


def _functions(definitions: Iterable[Definition]) -> list[str]:
    """Return the names of the functions."""
    return [definition.name for definition in definitions if definition.kind == "function"]


def _read(source: str) -> list[Definition]:
    """Parse a text of an author. Raises `InvalidSkill`."""
    if len(source) > SOURCE_LIMIT:
        raise InvalidSkill(f"the source has {len(source)} characters; {SOURCE_LIMIT} are allowed")
    compile_source(tidy_source(source))
    return read_text(source)


def _replace_once(name: str, text: str, old: str, new: str) -> str:
    """Return the text with the one occurrence of a piece replaced. Raises `InvalidSkill`."""
    count = text.count(old) if old else 0
    if count == 1:
        return text.replace(old, new)
    if count:
        more = "include more of the text around it"
        raise InvalidSkill(f"the text to replace occurs {count} times in {name}; {more}")
    lines = [line.strip() for line in text.split("\n")]
    is_short = max(len(text), len(old)) <= SOURCE_LIMIT  # a recorded edit may contain anything
    near = difflib.get_close_matches(_first_line(old.strip()), lines, n=1) if is_short else []
    hint = f"; the nearest line is `{near[0]}` (spaces count)" if near else f"; show {name} first"
    raise InvalidSkill(f"the text to replace does not occur in {name}{hint}")


def _first_line(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first} ..." if rest else first
