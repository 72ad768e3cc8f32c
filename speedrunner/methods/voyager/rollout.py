"""A training rollout: a curriculum proposes objectives, the actor pursues them with programs, a critic
judges."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from speedrunner.config.schema import AtLeastOne
from speedrunner.methods import (
    TRIES,
    ActorSpec,
    EpisodeContext,
    InvalidSkill,
    Library,
    Message,
    Termination,
    TextEnv,
    Tool,
    Toolbox,
    ToolCall,
    ToolError,
    ToolReply,
    ToolSpec,
    quote_description,
    render,
    shared_parts,
)
from speedrunner.methods.voyager.programs import Program, add_program

PROGRAMMER = "programmer"
"""Role of the actor that writes programs, with the budgets of code-writing roles."""

RUN_PROGRAM = ToolSpec.from_signature(
    "run_program",
    inspect.Signature([inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY, annotation=str)]),
    "Run a program. `source` is its main function, after the helper functions that it needs, if any.",
)


OBJECTIVE_CHARS = 200
"""Maximum characters of an objective: every later prompt of the curriculum contains it."""


class Objectives(msgspec.Struct, forbid_unknown_fields=True):
    """Objectives that were reached, in any world, and those that never were; each once, in order."""

    completed: list[str] = []
    failed: list[str] = []

    def merge(self, later: Objectives) -> Objectives:
        """Return these objectives merged with those of a later rollout."""
        completed = list(dict.fromkeys([*self.completed, *later.completed]))
        failed = dict.fromkeys([*self.failed, *later.failed])
        return Objectives(completed, [objective for objective in failed if objective not in completed])


class MethodState(Objectives, forbid_unknown_fields=True):
    """A rollout's data for the sleep: its objectives and the accepted programs."""

    programs: list[Program] = []


Retrieve = AtLeastOne | Literal["all"]
"""Number of programs whose code the programming actor sees; `all`: every program, without code."""


def programming(
    library: Library, env: TextEnv, retrieve: Retrieve, tries: int, objective: str = "", left: str = ""
) -> ActorSpec:
    """Return an actor that acts by writing programs.

    Its system prompt is the same for all objectives, and so stays in the prefix cache. The code of the
    programs that fit the objective best (none without one) is in the user message; `retrieve=all` lists
    all functions in the system prompt.

    Args:
        left: what is left of the episode's limits.
    """
    public = [skill.name for skill in library.skills if skill.public]
    nearest = library.rank(objective, retrieve) if retrieve != "all" and objective else []
    instructions = render(
        __package__,
        "actor/instructions",
        **shared_parts(env, program=True),
        tries=tries,
        listed=[library.entry(skill.name) for skill in library.skills] if retrieve == "all" else None,
    )
    reference = render(
        __package__,
        "actor/reference",
        count=None if retrieve == "all" else len(public),
        sources=library.excerpt(*nearest, without=public),
        left=left,
    )
    return ActorSpec(
        library, tools=(RUN_PROGRAM,), role=PROGRAMMER, instructions=instructions, reference=reference
    )


@dataclass
class Rollout:
    """A training rollout in progress.

    Attributes:
        library: the programs that can be called now.
        past: the objectives of earlier rollouts.
        tries: maximum answers of the actor for one objective.
        retrieve: which programs the actor sees.
    """

    context: EpisodeContext
    library: Library
    past: Objectives
    tries: int
    retrieve: Retrieve
    _kept: MethodState = field(default_factory=MethodState)
    _objective: str = ""
    _pursued: bool = False
    """Whether a program has run for the objective."""

    async def play(self) -> Termination:
        """Pursue objectives until the episode is over or its budget is used up."""
        while True:
            self._objective, termination = await self._propose()
            if not self._objective:
                return termination
            self._pursued, accepted = False, len(self._kept.programs)
            env, objective, left = self.context.env, self._objective, self._describe_left()
            spec = programming(self.library, env, self.retrieve, self.tries, objective, left)
            termination = await self.context.act(spec, Toolbox([self.run_program]), objective, self.tries)
            reached = len(self._kept.programs) > accepted
            if self._pursued:
                (self._kept.completed if reached else self._kept.failed).append(self._objective)
            self.context.method_state.update(msgspec.to_builtins(self._kept))
            over = not reached and termination is not Termination.CALL_LIMIT
            if over or self.context.clock.llm_calls <= 0:
                return Termination.CALL_LIMIT if reached else termination

    async def run_program(self, source: str) -> ToolReply:
        """Run a program in the world; keep it if a critic finds that the objective is reached."""
        try:
            library, main = add_program(self.library, source)
            await self.context.load(library)
        except InvalidSkill as error:
            raise ToolError(str(error)) from error
        before, self._pursued = self.context.observation, True
        reply = await self.context.execute(ToolCall(main, {}))
        if reply.termination is not None:
            return reply
        after = await self._observe()
        success, critique = False, ""
        if reply.executed.error is None:
            success, critique = await self._judge(before, after)
        if success:
            self.library = library
            self._kept.programs.append(Program(self._objective, source))
            return ToolReply(reply.text, reply.executed, Termination.SUBMITTED)
        await self.context.load(self.library)
        shown = render(__package__, "actor/reply", reply=reply.text, observation=after, critique=critique)
        return ToolReply(shown, reply.executed)

    async def _propose(self) -> tuple[str, Termination]:
        """Return the next objective; empty if the episode ends here."""
        proposed = ""

        def propose_objective(reasoning: str, objective: str) -> str:
            """Propose the next objective, a short phrase. `reasoning` says why it comes next."""
            nonlocal proposed
            proposed = " ".join(objective.split())
            if not proposed:
                raise ToolError("the objective is empty")
            if len(proposed) > OBJECTIVE_CHARS:
                raise ToolError(
                    f"the objective has {len(proposed)} characters; use at most {OBJECTIVE_CHARS}"
                )
            return "The objective was accepted."

        observation = await self._observe()
        inputs = {"observation": observation, "now": self._kept, "past": self.past}
        termination = await self._ask("curriculum", propose_objective, **inputs)
        if termination is Termination.CALL_LIMIT and self.context.clock.llm_calls > 0:
            return self.context.opening.instruction, termination  # no proposal: pursue the task itself
        return proposed, termination

    async def _judge(self, before: str, after: str) -> tuple[bool, str]:
        """Return whether the objective is reached, and how to improve. Without the critic's answer, it is
        not."""
        verdict = False, ""

        def judge(reasoning: str, success: bool, critique: str) -> str:
            """Say whether the objective was reached, with your reasoning. If it was not, `critique` says what
            to do better."""
            nonlocal verdict
            verdict = success, critique.strip()
            return "Your judgment was recorded."

        await self._ask("critic", judge, objective=self._objective, before=before, after=after)
        return verdict

    async def _ask(self, role: str, tool: Tool, **inputs: Any) -> Termination:
        """Ask the curriculum or the critic. Each prompt has the limits and what is left of them."""
        context, env = self.context, self.context.env
        goals = [goal for goal in env.goals if goal not in env.description]
        description = quote_description(env)
        system = render(__package__, f"{role}/system", description=description, goals=goals, tries=self.tries)
        user = render(__package__, f"{role}/user", left=self._describe_left(), **inputs)
        messages = [Message("system", system), Message("user", user)]
        return await context.run_agent(role, messages, Toolbox([], tool), TRIES)

    def _describe_left(self) -> str:
        """Return what is left of the episode's limits."""
        context, actions = self.context, self.context.env.limits.actions
        answers = f"{context.clock.llm_calls} answers of all roles together"
        return answers if actions is None else f"{answers} and {actions - context.actions} actions"

    async def _observe(self) -> str:
        """Return the current world, by the primitive that reads it without acting, if there is one."""
        for primitive in self.context.env.primitives:
            if not primitive.advances and not primitive.signature.parameters:
                await self.context.execute(ToolCall(primitive.name, {}))
                break
        return self.context.observation
