"""Agent Skill Induction, online (paper, section 4.1 and Appendix E): functions abstracted from successes.

After Wang et al., "Inducing Programmatic Skills for Agentic Tasks" (2025), without verification by replay.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from speedrunner.agents.reading import opening, turns
from speedrunner.methods import (
    ActorSpec,
    Edit,
    History,
    Library,
    Message,
    Method,
    Overflow,
    Policy,
    Sees,
    SleepTools,
    Task,
    Termination,
    TextEnv,
    Trajectory,
    describe_episodes,
    headline,
    newest_batch,
    render,
    skill_example,
    skill_rules,
    world,
)
from speedrunner.methods.append_only import append_skills

Successful = Literal["better_half", "solved"]


def select_successful(batch: Sequence[Trajectory], rule: Successful) -> list[Trajectory]:
    """Return the episodes of a batch from which skills are induced.

    Args:
        batch: scored episodes.
        rule: `solved`: episodes that the environment calls a success. `better_half`: also episodes with a
            score above 0 and at least the batch's median. With scores of only 0 or 1, both rules are the
            same.
    """
    scores = [each.outcome.score for each in batch if each.outcome is not None]
    bar = statistics.median(scores) if scores else 0.0
    return [
        each
        for each in batch
        if each.outcome is not None
        and (each.outcome.success or (rule == "better_half" and 0 < each.outcome.score >= bar))
    ]


@dataclass(kw_only=True)
class ASI(Method):
    """An append-only library; the actor sees every skill.

    Attributes:
        successful: selects the episodes from which skills are induced, see `select_successful`.
        overflow: handling of an episode that does not fit the context. `skip` induces nothing from it;
            `discard` changes nothing in the whole sleep, as in the paper.
        sees: what the inducer sees of an outcome.
    """

    successful: Successful = "better_half"
    overflow: Overflow = "skip"
    sees: Sees = "score"

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return the policy's library as the actor's specification, without another method's notes."""
        return ActorSpec(Library(env.primitives).of(policy))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer propose functions for each successful episode of the batch, one after another.

        Raises:
            ServingError, SandboxError: the sleep continues when the run resumes.
        """
        library = tools.library(policy)
        for played in select_successful(newest_batch(history), self.successful):
            proposed = await self._propose(library, played, tools)
            overflowed = any(each.termination is Termination.CONTEXT_OVERFLOW for each in tools.agents)
            if overflowed and self.overflow == "discard":
                tools.take_back("another episode of the batch overflowed the context")
                return policy
            if proposed.strip():
                grown, edits = await append_skills(library, proposed, tools.sleep)
                if any(edit.error is None for edit in edits):
                    grown, edits = await self.verified(grown, edits, played, tools)
                library = grown
                tools.edits += edits
        return library.policy(policy)

    async def verified(
        self, grown: Library, edits: list[Edit], played: Trajectory, tools: SleepTools
    ) -> tuple[Library, list[Edit]]:
        """Return the additions of an episode that are kept; the online method keeps all."""
        return grown, edits

    async def _propose(self, library: Library, played: Trajectory, tools: SleepTools) -> str:
        proposed = ""

        def propose_functions(source: str) -> str:
            """Submit the functions as one Python source, or an empty source if there is none to submit."""
            nonlocal proposed
            proposed = source
            return "The functions were submitted."

        await tools.ask("inducer", self._messages(library, played, tools), propose_functions)
        return proposed

    def _messages(self, library: Library, played: Trajectory, tools: SleepTools) -> list[Message]:
        system = render(
            __package__,
            "asi/system",
            world=world(tools.env),
            episodes=describe_episodes(tools.env, tools.limits),
            rules=skill_rules(tools.env, tools.model.model_config.role("inducer").string_tokens),
            example=skill_example(),
        )
        plain = msgspec.to_builtins(played)
        user = render(
            __package__,
            "asi/user",
            library=library,
            headline=headline(plain, has_task=False),
            opening=opening(plain),
            turns=["\n".join(lines) for lines in turns(plain)],
        )
        return [Message("system", system), Message("user", user)]
