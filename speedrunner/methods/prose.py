"""Prose: SpeedRunner's inducer, which writes notes instead of skills.

It varies the form of what is learned alone: interpreter, history, calls and budget are SpeedRunner's. OPO
also writes notes, but in one answer and without an interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from speedrunner.methods import History, Policy, SleepTools, Tool, ToolError, shared_parts
from speedrunner.methods.speedrunner.inducer import Inducer


@dataclass
class NotesDraft:
    """The notes while they are edited.

    Attributes:
        most: maximum number of their tokens.
    """

    text: str
    tools: SleepTools
    most: int

    def write_notes(self, text: str) -> str:
        """Replace all notes with `text`."""
        return self._store(text.strip())

    def edit_notes(self, old: str, new: str) -> str:
        """Replace a part of the notes. `old` must occur exactly once; `new` can be empty."""
        if (count := self.text.count(old) if old else 0) != 1:
            raise ToolError(f"the old text occurs {count} times in the notes, and it must occur once")
        return self._store(self.text.replace(old, new).strip())

    def _store(self, text: str) -> str:
        if not text:
            raise ToolError("the notes are empty")
        if (tokens := self.tools.model.count_tokens(text)) > self.most:
            raise ToolError(f"the notes would have {tokens} tokens, and they can have at most {self.most}")
        self.text, self.tools.changed = text, "notes rewritten"
        return f"The notes have {tokens} of {self.most} tokens."


class Prose(Inducer):
    """A method that learns prose with all means of SpeedRunner's inducer."""

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer rewrite the notes. What it wrote last counts even if it could not finish.

        Raises:
            ServingError: the engine failed.
            SandboxError: the inducer's code cannot be run here.
        """
        draft = NotesDraft(policy.notes, tools, tools.model.model_config.role("inducer").string_tokens)
        world = shared_parts(tools.env)["actor_world"]
        messages = [
            self.system_message("prose_system", history, tools, 0, world=world, most=draft.most, prose=True),
            self.user_message("prose_user", history, tools, notes=policy.notes),
        ]
        library = tools.library(policy)
        offered: list[Tool] = [draft.write_notes, draft.edit_notes]
        await self.work(messages, offered, history, tools, lambda: library)
        return msgspec.structs.replace(policy, notes=draft.text)
