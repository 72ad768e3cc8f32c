"""The inducer's tools for reading and editing the draft of a library; it is told their docstrings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from speedrunner.agents.toolbox import Tool, ToolError
from speedrunner.library.library import Library
from speedrunner.library.loading import check_loading
from speedrunner.library.skill_parser import function_name
from speedrunner.library.skill_source import InvalidSkill
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.records import Edit, EditAction


class Draft:
    """A library while it is edited. It is valid at every moment: an edit that would break it is refused.

    Its tools raise `ToolError` for the inducer's mistakes, and `SandboxError` where nothing can be run here.

    Args:
        library: what the sleep begins with.
        sleep: the sleep's number.
        edits: gets a record of each edit that was asked for, the refused ones too.
        output_chars: longest text that a tool returns, in characters.
        sandbox: where an edited module is loaded, if that can fail.
    """

    def __init__(
        self, library: Library, sleep: int, edits: list[Edit], output_chars: int, sandbox: Sandbox
    ) -> None:
        self.library = library
        self._sleep = sleep
        self._edits = edits
        self._output_chars = output_chars
        self._sandbox = sandbox

    def tools(self, *, all_public: bool) -> list[Tool]:
        """Return the tools in the order of use.

        Args:
            all_public: whether the actor is to see every skill (paper, section 4.1: an ablation).
        """

        async def write_skill(source: str) -> str:
            """Add a skill, or replace the one of the same name. `source` is its function, with those imports,
            constants and classes before it that the library lacks."""
            return await self.write_skill(source, public=True)

        writing: list[Tool] = [write_skill] if all_public else [self.write_skill, self.set_visibility]
        return [
            *(self.list_skills, self.show_skill, *writing),
            *(self.edit_skill, self.rename_skill, self.delete_skill),
        ]

    def list_skills(self, first: int = 0) -> str:
        """List the skills of the draft with their parameters and what each calls, from number `first` on,
        counted from 0."""
        signatures, calls = self.library.signatures(), self.library.call_graph()
        lines = [
            f"{'public' if skill.public else 'private'} {skill.name}{signatures[skill.name]}"
            + (f", calls {', '.join(calls[skill.name])}" if calls[skill.name] else "")
            for skill in self.library.skills
        ]
        return self._page(lines, first, "first")

    def show_skill(self, name: str, from_line: int = 0) -> str:
        """Show the source of a skill, or of a constant or class that skills share, and what uses it, from
        line `from_line` on, counted from 0."""
        try:
            source = self.library.show(name)
        except InvalidSkill as error:
            raise ToolError(str(error)) from error
        return self._page(source.splitlines(), from_line, "from_line")

    async def write_skill(self, source: str, public: bool) -> str:
        """Add a skill, or replace the one of the same name. `source` is its function, with those imports,
        constants and classes before it that the library lacks; `public` tells whether the actor sees it."""
        name = function_name(source)
        known = any(skill.name == name for skill in self.library.skills)
        edited = partial(self.library.write, source, public=public, sleep=self._sleep)
        if not await self._edit("write", name, edited):
            return "The library holds exactly this skill already."
        return self._done(f"{name} is {'replaced' if known else 'added'}")

    async def set_visibility(self, name: str, public: bool) -> str:
        """Show a skill to the actor, or hide it; other skills can call it either way."""
        seen = "public" if public else "private"
        edited = partial(self.library.set_visibility, name, public=public, sleep=self._sleep)
        if not await self._edit("visibility", name, edited):
            return f"{name} is {seen} already."
        return self._done(f"{name} is {seen} now")

    async def edit_skill(self, name: str, old: str, new: str) -> str:
        """Replace the text `old`, which must occur exactly once in a skill (or in a shared constant or
        class), by `new`."""
        if not await self._edit("edit", name, partial(self.library.edit, name, old, new, sleep=self._sleep)):
            return "This changes nothing."
        return self._done(f"{name} is changed")

    async def rename_skill(self, name: str, new_name: str) -> str:
        """Rename a skill, and with it every call in the library; docstrings stay as they are."""
        await self._edit("rename", name, partial(self.library.rename, name, new_name, sleep=self._sleep))
        return self._done(f"{name} is {new_name} now")

    async def delete_skill(self, name: str) -> str:
        """Delete a skill that no other skill calls."""
        await self._edit("delete", name, partial(self.library.delete, name))
        return self._done(f"{name} is deleted")

    async def _edit(self, action: EditAction, name: str, edited: Callable[[], Library]) -> bool:
        """Make an edit and record it; tell whether it changed anything. Raises `ToolError`."""
        try:
            library = edited()
            if library.preamble != self.library.preamble:
                await check_loading(library, self._sandbox)
        except InvalidSkill as error:
            self._edits.append(Edit(action, name, str(error)))
            raise ToolError(str(error)) from error
        if library == self.library:
            return False
        self.library = library
        self._edits.append(Edit(action, name))
        return True

    def _done(self, what: str) -> str:
        count = len(self.library.skills)
        skills = "1 skill" if count == 1 else f"{count} skills"
        return f"{what}. The library has {skills}, {len(self.library.public)} of them public."

    def _page(self, lines: list[str], first: int, parameter: str) -> str:
        """As many whole lines from `first` on as may be shown, and how to go on."""
        most = self._output_chars
        end = first = max(first, 0)
        if first >= len(lines):
            return "There are no more." if lines else "The library is empty."
        shown: list[str] = []
        while end < len(lines) and (not shown or sum(map(len, shown)) + len(lines[end]) <= most):
            line = lines[end]
            rest = f" [cut after {most} of {len(line)} characters]" if len(line) > most else ""
            shown.append(line[:most] + rest)
            end += 1
        if end < len(lines):
            shown.append(f"[lines {first} to {end - 1} of {len(lines)}; go on with {parameter}={end}]")
        return "\n".join(shown)
