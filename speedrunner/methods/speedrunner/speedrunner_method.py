"""SpeedRunner (paper, section 3): an inducer reads the stored trajectories and edits the skill library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from speedrunner.methods import (
    ActorSpec,
    History,
    Library,
    Message,
    Policy,
    SleepTools,
    Task,
    TextEnv,
    render,
)
from speedrunner.methods.speedrunner.draft import Draft
from speedrunner.methods.speedrunner.inducer import Inducer

SOURCE_TOKENS, SOURCE_SHARE = 15_000, 0.125
"""Maximum tokens of a library's source, and maximum share of the context, to be included in the prompt; a
larger library is only listed."""


@dataclass(kw_only=True)
class SpeedRunner(Inducer):
    """Wake-sleep skill library learning.

    Attributes:
        prompt: the inducer's instructions; `asi_style`: abstract observed behavior (section 6.1).
        visibility: `all_public` shows the actor every skill (section 6.1).
    """

    prompt: Literal["goal_oriented", "asi_style"] = "goal_oriented"
    visibility: Literal["split", "all_public"] = "split"

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return the policy's library as the actor's specification."""
        return ActorSpec(Library(env.primitives).of(self._apply_visibility(policy, env)))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer edit the library. Accepted edits count even if it could not finish.

        Raises:
            ServingError: the engine failed.
            SandboxError: the inducer's code cannot be run here.
        """
        policy = self._apply_visibility(policy, tools.env)
        draft = Draft(tools.library(policy), tools.sleep, tools.edits)
        messages = self._messages(draft.library, history, tools)
        offered = draft.tools(all_public=self.visibility == "all_public")
        await self.work(messages, offered, history, tools, lambda: draft.library)
        return draft.library.policy(policy)

    def _messages(self, library: Library, history: History, tools: SleepTools) -> list[Message]:
        split, model = self.visibility == "split", tools.model
        goal = render(__package__, self.prompt, tools.wording, interpreter=self.interpreter == "on")
        system = self.system_message(
            "system", history, tools, tools.wording, goal=goal, split=split, prose=False
        )
        source = library.annotated_source()
        most = min(SOURCE_TOKENS, model.model_config.context * SOURCE_SHARE)
        is_shown = model.count_tokens(source) <= most
        user = self.user_message(
            "user", history, tools, library=library, source=source if is_shown else "", split=split
        )
        return [system, user]

    def _apply_visibility(self, policy: Policy, env: TextEnv) -> Policy:
        """Return the policy with the configured visibility; a skill that cannot be a tool stays hidden."""
        if self.visibility == "split":
            return policy
        library = Library(env.primitives).of(policy)
        skills = tuple(
            msgspec.structs.replace(skill, public=library.can_be_tool(skill.name)) for skill in policy.skills
        )
        return msgspec.structs.replace(policy, skills=skills)
