"""The inducer's tools for reading and editing the draft of a library. The inducer reads their docstrings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from speedrunner.methods import Edit, InvalidSkill, Library, Tool, ToolError, function_names

PAGE_CHARS = 12_000
"""Characters of one page of sources or of the list of skills; most skills fit on one page."""


@dataclass
class Draft:
    """A library while it is edited. It is always valid: an edit that would break it is refused.

    Its tools raise `ToolError` for the inducer's mistakes.

    Attributes:
        library: initially the library before the sleep.
        sleep: the sleep's number.
        edits: receives a record of each requested edit, refused ones included.
    """

    library: Library
    sleep: int
    edits: list[Edit]

    def tools(self, *, all_public: bool) -> list[Tool]:
        """Return the tools in the order of use.

        Args:
            all_public: whether the actor is to see every skill (paper, section 6.1: an ablation).
        """

        def write_skill(source: str) -> str:
            """Add skills, or replace skills with the same names. `source` is one function or several, with
            the imports and constants that the library does not have yet."""
            return self._write(source, public=True)

        writing: list[Tool] = [write_skill] if all_public else [self.write_skill, self.set_visibility]
        return [
            *(self.list_skills, self.show_skill, *writing),
            *(self.edit_skill, self.rename_skill, self.delete_skill),
        ]

    def list_skills(self, first: int = 0) -> str:
        """List the skills of the draft with their parameters and the functions that they call. `first` is the
        number of the first skill to list, counted from 0."""
        return self._page([skill.name for skill in self.library.skills], self._line, first, "first")

    def show_skill(self, name: str, from_line: int = 0) -> str:
        """Show the source of a skill or of a shared constant, and the skills that use it. `from_line` is the
        first line to show, counted from 0."""
        try:
            source = self.library.show(name)
        except InvalidSkill as error:
            raise ToolError(str(error)) from error
        return self._page(source.split("\n"), str, from_line, "from_line")

    def write_skill(self, source: str, public: bool) -> str:
        """Add skills, or replace skills with the same names. `source` is one function or several, such as a
        main function and its helpers, with the imports and constants that the library does not have yet. If
        `public` is true, the actor sees these functions, except those with a leading underscore."""
        return self._write(source, public=None if public else False)

    def set_visibility(self, name: str, public: bool) -> str:
        """Show a skill to the actor, or hide it. Other skills can call it in both cases."""
        seen = "public" if public else "private"
        return self._edit(Edit("visibility", name, public=public), f"{name} is now {seen}")

    def edit_skill(self, name: str, old: str, new: str) -> str:
        """Replace the text `old` with `new` in a skill or in a shared constant. `old` must occur there
        exactly once."""
        return self._edit(Edit("edit", name, old=old, new=new), f"{name} was changed")

    def rename_skill(self, name: str, new_name: str) -> str:
        """Rename a skill and every call of it in the library. Docstrings are not changed."""
        return self._edit(Edit("rename", name, new_name=new_name), f"{name} was renamed to {new_name}")

    def delete_skill(self, name: str) -> str:
        """Delete a skill that no other skill calls."""
        return self._edit(Edit("delete", name), f"{name} was deleted")

    def _write(self, source: str, public: bool | None) -> str:
        names, known = function_names(source), self.library.by_name
        done = ", ".join(f"{name} was {'replaced' if name in known else 'added'}" for name in names)
        return self._edit(Edit("write", ", ".join(names), source=source, public=public), done)

    def _edit(self, edit: Edit, done: str) -> str:
        """Make an edit, record it, and return whether it was done or not needed. Raises `ToolError`."""
        try:
            library = self.library.apply(edit, sleep=self.sleep)
        except InvalidSkill as error:
            self.edits.append(msgspec.structs.replace(edit, error=str(error)))
            raise ToolError(str(error)) from error
        if library == self.library:
            return "Nothing changed: the library is already like this."
        self.library = library
        self.edits.append(edit)
        count, public = len(library.skills), len(library.public)
        return f"{done}. The library has {count} skill{'s' * (count != 1)}; {public} public."

    def _line(self, name: str) -> str:
        seen = "public" if self.library.skill(name).public else "private"
        calls = ", ".join(self.library.calls(name))
        return f"{seen} {name}{self.library.signature(name)}" + (f", calls {calls}" if calls else "")

    def _page(self, items: Sequence[str], text: Callable[[str], str], first: int, parameter: str) -> str:
        """Return as many whole lines as fit, one for each item from `first`, and how to read on."""
        end = first = max(first, 0)
        if first >= len(items):
            return "There are no further lines." if items else "The library is empty."
        most = room = PAGE_CHARS
        shown: list[str] = []
        for line in map(text, items[first:]):
            if shown and len(line) > room:
                shown.append(f"[lines {first} to {end - 1} of {len(items)}; continue with {parameter}={end}]")
                break
            room -= len(line)
            rest = f" [cut after {most} of {len(line)} characters]" if len(line) > most else ""
            shown.append(line[:most] + rest)
            end += 1
        return "\n".join(shown)
