"""A policy's skills and notes as text for people."""

from __future__ import annotations

from speedrunner.library.library import Library

EMPTY = "(the library is empty)"


def source_text(library: Library, notes: str = "") -> str:
    """Return the library's module, with a comment on each function's visibility and sleeps, then the policy's
    notes, if any."""
    functions = []
    for skill in library.skills:
        wrote = f"from sleep {skill.created}"
        if skill.edited != skill.created:
            wrote += f", edited in sleep {skill.edited}"
        functions.append(
            f"# {'public' if skill.public else 'private'}, {wrote}\n{library.named[skill.name].source}"
        )
    told = f"# notes for the actor\n{notes}" if notes else ""
    parts = ["\n".join(library.shared.values()), *functions, told]
    return "\n\n\n".join(filter(None, parts)) or EMPTY
