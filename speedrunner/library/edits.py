"""Edits as data: make an edit from its record, in a sleep and again in a verification."""

from __future__ import annotations

from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.store.records import Edit


def apply_edit(library: Library, edit: Edit, *, sleep: int) -> Library:
    """Return the library after an edit; the same one if the edit changes nothing.

    Args:
        sleep: number of the sleep that edits.

    Raises `InvalidSkill`: the library refuses the edit, or its record lacks arguments.
    """
    match edit:
        case Edit(action="write", source=str(source)):
            return library.write(source, sleep=sleep, public=edit.public)
        case Edit(action="edit", old=str(old), new=str(new)):
            return library.edit(edit.name, old, new, sleep=sleep)
        case Edit(action="rename", new_name=str(new_name)):
            return library.rename(edit.name, new_name, sleep=sleep)
        case Edit(action="visibility", public=bool(public)):
            return library.set_visibility(edit.name, public=public, sleep=sleep)
        case Edit(action="delete"):
            return library.delete(edit.name)
    raise InvalidSkill(f"the {edit.action} of {edit.name} lacks its arguments")
