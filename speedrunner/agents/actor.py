"""The actor: its prompt, its tools, and the replies that it reads (paper, section 3, wake phase)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from envs import Opening, TextEnv
from serving.conversation import Conversation
from serving.tokens.tools import ToolSpec
from speedrunner.agents.loop import plain_messages
from speedrunner.agents.reading import merge_repeats, result_text, write_call
from speedrunner.agents.rendering import render
from speedrunner.agents.skill_search import INSTRUCTIONS, SkillSearch
from speedrunner.config.schema import Config, LibraryConfig
from speedrunner.library.library import Library
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode, Labels, Message, Policy
from speedrunner.workers.sandbox.child.tracebacks import TRACEBACK
from speedrunner.workers.worker_messages import Executed

if TYPE_CHECKING:
    from serving.model import Model

DONE_SHOWN = 10
"""Number of a failed skill's last primitive calls that the actor is shown; equal calls in a row count as one.
"""

SUBMIT_ANSWER = ToolSpec.from_signature(
    "submit_answer", inspect.Signature(), "Declare the task complete. This ends the episode."
)
"""The tool that ends an episode of an environment whose `submits` is true."""


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Limits of one episode.

    Attributes:
        llm_calls: requests; the smaller of the environment's limit and the model config's.
        actions: primitive calls that advance the world; `None`: unlimited.
        wall_s: seconds of tool calls, or of the whole episode if `answers_count`.
        context: tokens of the conversation.
        repeats: repeated calls in a row that end the episode; 0: none do.
    """

    llm_calls: int
    actions: int | None
    wall_s: float
    answers_count: bool
    context: int
    repeats: int


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """Specification of an actor, made by the method.

    Attributes:
        library: the skills that can be called.
        notes: lessons from earlier episodes, at the end of the system prompt under a heading.
        instructions: how to act, for the system prompt, if this differs from single tool calls.
        reference: what the first user message says before the task.
        tools: what it may call; `None`: primitives and public skills. A method that names other tools runs
            them itself, see `speedrunner.methods.Method.play`.
        role: the role with the sampling, budgets and model to use; see `ModelConfig.role`.
        searches: whether it finds public skills by a search, instead of having each as a tool.
    """

    library: Library
    notes: str = ""
    tools: tuple[ToolSpec, ...] | None = None
    role: str = "actor"
    instructions: str = ""
    reference: str = ""
    searches: bool = False

    def list_tools(self, env: TextEnv) -> list[ToolSpec]:
        """Return the tools that the actor may call: primitives, public skills, and `submit_answer` if the
        task wants it.
        """
        own: Sequence[ToolSpec] = self.library.tools() if self.tools is None else self.tools
        if self.searches:
            own = [*self.library.last_visible(0).tools(), *SkillSearch(self.library).specs]
        return [*own, *([SUBMIT_ANSWER] if env.submits else [])]

    def messages(self, env: TextEnv, opening: Opening, wording: int = 0) -> list[Message]:
        """Return the first messages. The system message is the same for all episodes of a spec."""
        system = render(
            __package__,
            "system",
            wording,
            description=env.description,
            limits=env.limits,
            has_skills=self.tools is None and not self.searches and bool(self.library.public),
            submits=env.submits,
            instructions="\n\n".join(filter(None, (self.instructions, INSTRUCTIONS * self.searches))),
            notes=self.notes,
        )
        task = render(
            __package__,
            "user",
            reference=self.reference,
            instruction=opening.instruction,
            observation=opening.observation,
        )
        return [Message("system", system), Message("user", task)]

    def prompt_hash(self, env: TextEnv, messages: list[Message]) -> str:
        """Return the SHA-256 of an actor's first prompt: its messages and tools."""
        return hashlib.sha256(msgspec.json.encode([messages, self.list_tools(env)])).hexdigest()

    def with_part(self, part: LibraryConfig) -> ActorSpec:
        """Return this spec with its library as an evaluation shows it.

        Raises `InvalidPolicy`: the actor does not call skills as tools, or has none to search.
        """
        if part == LibraryConfig():
            return self
        if self.tools is not None:
            raise InvalidPolicy(f"{part}: the actor of this method does not call skills as tools")
        last, searches = part.visible_last, part.shown == "search"
        library = self.library if last is None else self.library.last_visible(last)
        if searches and not library.public:
            raise InvalidPolicy(f"{part}: the actor has no skills to search")
        return replace(self, library=library, searches=searches)


class Actor:
    """The actor of one environment, played by one model.

    Args:
        env: only its rules are read; episodes run in workers.
        model: the model that plays all roles.
        config: sets the budgets of an episode (next to the environment's limits) and of the sandbox.

    Attributes:
        limits: the limits of one episode.
    """

    def __init__(self, env: TextEnv, model: Model, config: Config) -> None:
        self.env = env
        self.config = config
        self.model = model
        self.limits = EpisodeLimits(
            llm_calls=model.model_config.role("actor").calls(env.limits.llm_calls),
            actions=env.limits.actions,
            wall_s=config.run.wall_clock_s,
            answers_count=config.run.wall_clock == "all",
            context=model.model_config.context,
            repeats=config.run.stop_after_repeats,
        )

    def converse(
        self, role: str, messages: list[Message], tools: Sequence[ToolSpec], labels: Labels, key: str
    ) -> Conversation:
        """Open a conversation of a role. The caller closes it.

        Args:
            key: names it among all conversations of the run, for the seeds of its requests.
        """
        conversation = self.model.converse(role, plain_messages(messages), list(tools), labels.plain())
        conversation.seed_key = f"{self.config.run.seed}/{key}"
        return conversation

    def shared_prefix(self, spec: ActorSpec) -> list[int]:
        """Return the token ids that every episode of `spec` starts with; empty on the chat API."""
        return self.model.shared_prefix(spec.role, *self._any_prompt(spec))

    async def warm(self, spec: ActorSpec, labels: Labels) -> None:
        """Send the shared prefix alone, before the episodes start. See `serving.model.Model.warm`."""
        await self.model.warm(spec.role, *self._any_prompt(spec), labels.plain())

    def library(self, policy: Policy) -> Library:
        """Return the policy's skills for editing. The library refuses skills that the actor could not call.

        Raises `InvalidPolicy`: the policy on disk is damaged.
        """
        return Library(self.env.primitives, check=self.model.check_tool).of(policy)

    def _any_prompt(self, spec: ActorSpec) -> tuple[list[dict[str, str]], list[ToolSpec]]:
        messages = spec.messages(self.env, Opening("", ""), self.config.run.wording)
        return plain_messages(messages), spec.list_tools(self.env)


def actor_view(executed: Executed, limit_chars: int) -> str:
    """Return the text of the tool reply, the same for every method.

    The text is the call's return value or error. After an error it also says what the skill had done. The
    text of the last primitive follows under the heading "Last observation:", unless the text above contains
    it. The environment's free observation comes last, under the same condition.

    Args:
        executed: the worker's report, which is stored in full.
        limit_chars: characters after which each part is truncated, with a note.
    """
    node = executed.node
    parts = []
    if node.error is not None:
        error, _, _ = node.error.partition(f"\n{TRACEBACK}\n")
        parts.append(_cut(f"Error: {error}", limit_chars))
        if (done := _describe_progress(node)) is not None:
            parts.append(_cut(done, limit_chars))
    elif node.result is not None or executed.observation is None:
        parts.append(_cut(result_text(node.result), limit_chars))
    for title, text in (("Last observation:\n", executed.observation), ("", executed.free_observation)):
        # Skip it if the parts already show as much of it as would be shown here. Some environments end a
        # text with a line break in one place and without it in another.
        if text is not None and not any(text[:limit_chars].strip() in part for part in parts):
            parts.append(title + _cut(text, limit_chars))
    return "\n\n".join(parts)


def _describe_progress(node: CallNode) -> str | None:
    """Return what a failed skill did before its error; `None` if it called no primitive."""
    calls = [call for call in node.below() if call.kind == "primitive" and call.error is None]
    if not calls:
        return None
    omitted = any(call.omitted for call in (node, *node.below()))
    count = f"{'at least ' * omitted}{len(calls)} primitive call{'s' * (len(calls) != 1)}"
    last = ", ".join(merge_repeats(write_call(call.name, call.arguments) for call in calls)[-DONE_SHOWN:])
    calls_shown = "the last recorded calls" if omitted else "the last calls"
    return f"Before that it made {count} ({node.actions} actions); {calls_shown}: {last}"


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} of {len(text)} characters are not shown]"
