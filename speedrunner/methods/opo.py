"""Online prompt optimization (paper, section 4.1): after each batch, one answer of a model rewrites the notes
in the actor's prompt."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from speedrunner.methods import (
    TRIES,
    History,
    Method,
    Policy,
    Sees,
    SleepTools,
    ToolError,
    newest_batch,
    render,
    shared_parts,
    trajectory_text,
)


@dataclass(kw_only=True)
class OPO(Method):
    """A method that learns prose only.

    Attributes:
        sees: what the optimizer sees of an outcome.
    """

    sees: Sees = "score"

    sleep_calls = TRIES

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the optimizer read the batch's episodes and rewrite the notes.

        Raises `ServingError`: the engine failed.
        """
        notes = policy.notes

        def write_notes(text: str) -> str:
            """Replace the notes with `text`."""
            nonlocal notes
            if not text.strip():
                raise ToolError("the notes are empty")
            notes = text.strip()
            return "The notes are stored."

        string_tokens = tools.model.model_config.role("optimizer").string_tokens
        system = render(__package__, "opo/system", **shared_parts(tools.env, tools.limits, string_tokens))
        texts = [trajectory_text(episode) for episode in newest_batch(history)]
        user = render(__package__, "opo/user", notes=policy.notes, texts=texts)
        await tools.ask("optimizer", system, user, write_notes)
        tools.changed = "notes rewritten" if notes != policy.notes else ""
        return msgspec.structs.replace(policy, notes=notes)
