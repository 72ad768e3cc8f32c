"""Generated sequences of edits, compared with a simple model of what a library should hold."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.records import Edit, Policy
from tests.toy_env import Corridor

NAMES = ("go", "go_on", "_go", "step", "far", "back")
PRIMITIVES = Corridor().primitives

names = st.sampled_from(NAMES)
numbers = st.integers(1, 9)
calls = st.frozensets(names, max_size=2)


@dataclass(frozen=True)
class Expected:
    """What the model knows of one skill."""

    calls: tuple[str, ...]
    number: int
    limit: int | None
    public: bool
    created: int
    edited: int

    def source(self, name: str) -> str:
        """Return the skill's text."""
        steps = "LIMIT" if self.limit else self.number
        body = "".join(f"    {each}()\n" for each in self.calls)
        return f'def {name}() -> str:\n    """Walk, and do not go back."""\n{body}    return walk({steps})'


@dataclass
class Model:
    """The skills by name, in the order in which they came into the library, and the shared constant."""

    skills: dict[str, Expected] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """The value of the constant, which the library has as long as a skill uses it."""
        return next((each.limit for each in self.skills.values() if each.limit), None)

    def callers(self, name: str) -> list[str]:
        """Return the other skills that call a skill."""
        return [each for each, skill in self.skills.items() if name in skill.calls and each != name]


class Editing(RuleBasedStateMachine):
    """A library that sleeps edit; after each step it must be what the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.library = Library(PRIMITIVES)
        self.model = Model()
        self.sleep = 1

    @initialize()
    def begin(self) -> None:
        """Begin the first sleep."""
        self.before = self.library
        self.accepted: list[Edit] = []

    def make(self, edit: Edit, expected: dict[str, Expected] | None) -> None:
        """Make an edit that should lead to these skills, or be refused (`None`)."""
        before = self.library
        text, skills = before.source, before.skills
        try:
            edited = before.apply(edit, sleep=self.sleep)
        except InvalidSkill:
            assert expected is None, f"{edit} is refused"
            assert (before.source, before.skills) == (text, skills)
            return
        assert expected is not None, f"{edit} is accepted"
        if edited != before:
            self.accepted.append(msgspec.json.decode(msgspec.json.encode(edit), type=Edit))
        self.library, self.model = edited, Model(expected)

    @rule(name=names, calls=calls, number=numbers, public=st.sampled_from([True, False, None]))
    def write(self, name: str, calls: frozenset[str], number: int, public: bool | None) -> None:
        """Write a skill, new or in the place of one, that calls others."""
        self._write(name, tuple(sorted(calls)), number, None, public)

    @rule(name=names, number=st.integers(1, 2))
    def write_with_constant(self, name: str, number: int) -> None:
        """Write a skill that uses a constant, whose value other skills may depend on."""
        self._write(name, (), 1, number, True)

    def _write(
        self, name: str, calls: tuple[str, ...], number: int, limit: int | None, public: bool | None
    ) -> None:
        skills = self.model.skills
        seen = not name.startswith("_") if public is None else public
        old = skills.get(name)
        created = old.created if old else self.sleep
        new = Expected(calls, number, limit, seen, created, self.sleep)
        if old is not None and replace(old, edited=self.sleep) == new:
            new = old
        users = [each for each, skill in skills.items() if skill.limit and each != name]
        is_known = {*calls} <= skills.keys() | {name}
        is_clash = limit is not None and bool(users) and self.model.limit != limit
        source = (f"LIMIT = {limit}\n\n\n" if limit else "") + new.source(name)
        edit = Edit("write", name, source=source, public=public)
        self.make(edit, {**skills, name: new} if is_known and not is_clash else None)

    @rule(name=names, number=numbers)
    def edit(self, name: str, number: int) -> None:
        """Replace the number of steps in a skill's text."""
        skills = self.model.skills
        old = skills.get(name)
        text = f"walk({old.number})" if old else "walk(1)"
        edit = Edit("edit", name, old=text, new=f"walk({number})")
        if old is None or old.limit:
            self.make(edit, None)
        else:
            new = old if number == old.number else replace(old, number=number, edited=self.sleep)
            self.make(edit, {**skills, name: new})

    @rule(name=names, new_name=st.sampled_from([*NAMES, "walk", "class", "two words"]))
    def rename(self, name: str, new_name: str) -> None:
        """Rename a skill; its callers call it by the new name, and count as edited."""
        skills = self.model.skills
        edit = Edit("rename", name, new_name=new_name)
        if name not in skills or new_name in skills or new_name not in NAMES:
            self.make(edit, None)
            return
        changed = {name, *self.model.callers(name)}
        renamed = {
            new_name if each == name else each: replace(
                skill,
                calls=tuple(new_name if called == name else called for called in skill.calls),
                edited=self.sleep if each in changed else skill.edited,
            )
            for each, skill in skills.items()
        }
        self.make(edit, renamed)

    @rule(name=names)
    def delete(self, name: str) -> None:
        """Delete a skill, which is refused while another one calls it."""
        skills = self.model.skills
        allowed = name in skills and not self.model.callers(name)
        rest = {each: skill for each, skill in skills.items() if each != name}
        self.make(Edit("delete", name), rest if allowed else None)

    @rule(name=names, public=st.booleans())
    def show(self, name: str, public: bool) -> None:
        """Show a skill to the actor, or hide it."""
        skills = self.model.skills
        edit = Edit("visibility", name, public=public)
        if name not in skills:
            self.make(edit, None)
        else:
            old = skills[name]
            new = old if old.public == public else replace(old, public=public, edited=self.sleep)
            self.make(edit, {**skills, name: new})

    @precondition(lambda self: self.accepted)
    @rule()
    def next_sleep(self) -> None:
        """End the sleep: the next one reads the library from its policy."""
        self.sleep += 1
        self.library = Library(PRIMITIVES).of(self.library.policy(Policy(version=self.sleep)), trusted=False)
        self.before, self.accepted = self.library, []

    @invariant()
    def holds_the_expected_skills(self) -> None:
        """Compare texts, visibility, ages and order with the model."""
        found = {each.name: (each.public, each.created, each.edited) for each in self.library.skills}
        expected = {
            name: (skill.public, skill.created, skill.edited) for name, skill in self.model.skills.items()
        }
        assert list(found.items()) == list(expected.items())
        for name, skill in self.model.skills.items():
            assert self.library.named[name].source == skill.source(name)
        limit = self.model.limit
        assert self.library.shared == ({"LIMIT": f"LIMIT = {limit}"} if limit else {})

    @invariant()
    def shows_the_last_edited_skills_last(self) -> None:
        """Compare the actor's skills with those that are public, the last edited last."""
        public = [(skill.edited, name) for name, skill in self.model.skills.items() if skill.public]
        assert [(each.edited, each.name) for each in self.library.public] == sorted(public)
        shown = [name for name, skill in self.model.skills.items() if skill.public]
        for count in range(4):
            visible = self.library.last_visible(count)
            kept = [each.name for each in visible.skills if each.public]
            assert kept == (shown[-count:] if count else [])
            assert visible.source == self.library.source

    @invariant()
    def calls_only_what_it_has(self) -> None:
        """Check the call graph: it is that of the model, and no call leaves the library."""
        for name, skill in self.model.skills.items():
            assert set(self.library.calls(name)) - {"walk"} == {*skill.calls} <= self.library.by_name.keys()
            assert self.library.callers(name) == self.model.callers(name)

    @invariant()
    def is_a_module_that_reads_back_the_same(self) -> None:
        """Store the library and read it again, judged from its text alone."""
        ast.parse(self.library.source)
        policy = self.library.policy(Policy(version=self.sleep))
        assert Library(PRIMITIVES).of(policy, trusted=False) == self.library

    @invariant()
    def is_what_its_recorded_edits_lead_to(self) -> None:
        """Replay the accepted edits of the sleep on the library before it."""
        replayed = self.before
        for edit in self.accepted:
            replayed = replayed.apply(edit, sleep=self.sleep)
        assert replayed == self.library


Editing.TestCase.settings = settings(max_examples=15, stateful_step_count=25)
TestEditing = Editing.TestCase
