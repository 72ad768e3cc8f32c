"""Notes that the inducer keeps for its later sleeps (`method.notes=true`; not in the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from speedrunner.methods import Policy, ToolError

CHARS = 4_000
"""Maximum characters of the notes."""

KEY = "notes"
"""Their key in the method's part of a policy, so that each library version has the notes of its sleep."""


@dataclass
class OwnNotes:
    """The inducer's notes during one sleep."""

    text: str = ""

    @classmethod
    def of(cls, policy: Policy) -> OwnNotes:
        """Return the notes in a policy; empty if it has none."""
        return cls(str(policy.method.get(KEY, "")))

    def write_notes(self, text: str) -> str:
        """Replace your notes with `text`, which you will read in your next sleeps."""
        text = text.strip()
        if len(text) > CHARS:
            raise ToolError(f"the notes can have at most {CHARS:,} characters, and these have {len(text):,}")
        self.text = text
        return "The notes are stored."

    def stored_in(self, policy: Policy) -> Policy:
        """Return a policy with these notes."""
        method = {name: value for name, value in policy.method.items() if name != KEY}
        return msgspec.structs.replace(policy, method=method | ({KEY: self.text} if self.text else {}))
