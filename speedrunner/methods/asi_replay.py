"""Agent Skill Induction with verification by replay (paper, Appendix G, "Offline Continual Learning").

It replays training tasks, which online methods must not do. It is a comparison, not a competitor.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from speedrunner.methods import ActorSpec, Edit, Library, SleepTools, Trajectory
from speedrunner.methods.asi import ASI


class ASIReplay(ASI):
    """ASI that keeps a new skill only if the agent calls it while solving the inducing task again.

    The actor plays the task in a fresh copy of its world, with all skills of the library and the new ones.
    The task counts as solved if its score is at least that of the episode behind the skills. A new skill is
    kept if it ran without an error in the replay, called by the actor or by another skill.
    """

    replays: ClassVar[bool] = True

    async def verified(
        self, grown: Library, edits: list[Edit], played: Trajectory, tools: SleepTools
    ) -> tuple[Library, list[Edit]]:
        """Replay the task, and drop the new skills that were not used successfully."""
        assert played.outcome is not None
        again = await tools.play_task(played.task, ActorSpec(grown))
        assert again.outcome is not None
        solved = again.outcome.score >= played.outcome.score
        ran = {
            call.name
            for turn in again.turns
            if turn.executed is not None
            for call in (turn.executed, *turn.executed.below())
            if not call.failed
        }
        new = {name for edit in edits if edit.error is None for name in edit.names}
        kept = _without(grown, new - ran if solved else new)
        why = (
            "it was not called, or failed,"
            if solved
            else f"the task was not solved again ({again.termination})"
        )
        told = f"{why} when {played.episode} was played again"
        dropped = new - kept.by_name.keys()
        return kept, [
            edit if dropped.isdisjoint(edit.names) else msgspec.structs.replace(edit, error=told)
            for edit in edits
        ]


def _without(library: Library, names: set[str]) -> Library:
    """Delete skills, except those that remaining skills need."""
    left = set(names)
    while free := sorted(name for name in left if not library.callers(name)):
        for name in free:
            library = library.delete(name)
        left.difference_update(free)
    return library
