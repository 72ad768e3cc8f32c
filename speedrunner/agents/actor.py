"""The actor: what it is told, and what it may call (paper, section 3, wake phase)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from envs import Opening, TextEnv
from serving.model import Model
from serving.tokens.tools import ToolSpec
from serving.usage import Usage
from speedrunner.agents.loop import plain_messages
from speedrunner.agents.templates import render
from speedrunner.library.library import Library
from speedrunner.sandbox.code_session import load_failure
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.labels import Labels
from speedrunner.store.records import Message, Policy

SUBMIT_ANSWER = ToolSpec(
    name="submit_answer",
    doc="Declare the task complete. This ends the episode.",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a method gives its actor.

    Attributes:
        library: the skills that can be called.
        notes: prose at the end of its system prompt.
        tools: what it may call; `None` for primitives and public skills. A method that names others runs them
            itself, see `speedrunner.methods.base.Method.play`.
    """

    library: Library
    notes: str = ""
    tools: tuple[ToolSpec, ...] | None = None


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Budgets of one episode beside the environment's own.

    Attributes:
        wall_clock_s: after which it is ended and scored as it stands.
        call_wall_s: of one tool call; `None` leaves what remains of the episode.
        reply_chars: of one tool result, in the actor's view.
    """

    wall_clock_s: float
    call_wall_s: float | None
    reply_chars: int


class Actor:
    """The actor of one environment, played by one model.

    Args:
        env: read for its rules only; episodes run in hosts.
        model: what plays it.
        others: plays every other role of an episode; `None`: the same model.
        sandbox: how code that models write is confined.
    """

    def __init__(
        self,
        env: TextEnv,
        model: Model,
        limits: EpisodeLimits,
        others: Model | None = None,
        sandbox: Sandbox = Sandbox(),  # noqa: B008 - immutable
    ) -> None:
        self.env = env
        self.limits = limits
        self._model = model
        self._others = others or model
        self.sandbox = sandbox

    def model(self, role: str) -> Model:
        """What plays a role."""
        return self._model if role == "actor" else self._others

    @property
    def llm_calls(self) -> int:
        """Requests of one episode: the environment's limit, or the model card's if that is less."""
        return self._model.card.role("actor").calls(self.env.limits.llm_calls)

    def tools(self, spec: ActorSpec) -> list[ToolSpec]:
        """What the actor may call: primitives, public skills, and `submit_answer` where the task wants it."""
        own = spec.library.tools() if spec.tools is None else spec.tools
        return [*own, *([SUBMIT_ANSWER] if self.env.submits else [])]

    def messages(self, spec: ActorSpec, opening: Opening) -> list[Message]:
        """The first messages. The system message is the same for all episodes of a spec."""
        system = render(
            __package__,
            "system",
            description=self.env.description,
            has_skills=spec.tools is None and bool(spec.library.public),
            submits=self.env.submits,
            notes=spec.notes,
        )
        return [Message("system", system), Message("user", task_text(opening))]

    def shared_prefix(self, spec: ActorSpec) -> list[int]:
        """The token ids with which every episode of `spec` begins; none on the chat route."""
        return self._model.shared_prefix("actor", self._any_messages(spec), self.tools(spec))

    async def warm(self, spec: ActorSpec, labels: Labels) -> list[tuple[int, Usage]]:
        """Send that prefix alone, before the episodes begin. See `serving.model.Model.warm`."""
        return await self._model.warm("actor", self._any_messages(spec), self.tools(spec), labels.plain())

    def library(self, policy: Policy) -> Library:
        """The policy's skills, to be edited: what the actor could not call, or cannot be loaded, is refused.

        Raises:
            InvalidPolicy: somebody has damaged it.
        """
        load = partial(load_failure, self.sandbox)
        return Library(self.env.primitives, check=self.check_tool, load=load).of(policy)

    def check_tool(self, tool: ToolSpec) -> None:
        """Raise `InvalidTool` where the actor's model could not call it."""
        self._model.check_tool(tool)

    def _any_messages(self, spec: ActorSpec) -> list[dict[str, str]]:
        return plain_messages(self.messages(spec, Opening("", "")))


def task_text(opening: Opening) -> str:
    """What the actor is told of its task."""
    return render(__package__, "user", instruction=opening.instruction, observation=opening.observation)
