"""Agent Skill Induction, online (paper, section 4.1 and Appendix E): functions abstracted from successes.

After Wang et al., "Inducing Programmatic Skills for Agentic Tasks" (2025), without verification by replay.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from speedrunner.agents.reading import opening, task_line, turns, write_call
from speedrunner.library.definition import read_text
from speedrunner.methods import (
    ActorSpec,
    Edit,
    History,
    InvalidSkill,
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
    ToolError,
    Trajectory,
    describe_episodes,
    function_names,
    headline,
    newest_batch,
    render,
    skill_example,
    skill_rules,
    world,
)
from speedrunner.methods.append_only import append_skills

Successful = Literal["better_half", "solved"]
Style = Literal["original", "free"]

MOST_LINES, LEAST_CALLS, MOST_CALLS = 10, 2, 5
"""Bounds of a function in the style of the original: lines of code after its docstring, without comments, and
calls of primitives and skills as they are written, also in a loop."""


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


def find_excess(library: Library, source: str) -> dict[str, str]:
    """Return the functions of a text that break the bounds of the original, and its classes, each with the
    reason. A text that is no valid Python has none: `append_skills` refuses it."""
    try:
        written = read_text(source)
    except InvalidSkill:
        return {}
    known = {*library.by_name, *(each.name for each in library.primitives), *function_names(source)}
    found = {each.name: f"{each.name} is a class" for each in written if isinstance(each.head, ast.ClassDef)}
    for each in written:
        if not isinstance(each.head, ast.FunctionDef):
            continue
        (node,) = ast.parse(each.source).body
        assert isinstance(node, ast.FunctionDef)
        lines = sum(len(ast.unparse(statement).split("\n")) for statement in node.body[1:])
        reads = [(line, column) for name, line, column in each.names.reads if name in known]
        called = {
            (call.func.lineno, call.func.col_offset) for call in ast.walk(node) if isinstance(call, ast.Call)
        }
        calls = len(reads)
        why = [f"{lines} lines of code (at most {MOST_LINES})"] * (lines > MOST_LINES)
        if not LEAST_CALLS <= calls <= MOST_CALLS:
            why.append(f"{calls} calls of primitives or skills ({LEAST_CALLS} to {MOST_CALLS})")
        if not called.issuperset(reads):
            why.append("primitives or skills that it does not call where it names them")
        if why:
            found[each.name] = f"{each.name} has {' and '.join(why)}"
    return found


@dataclass(kw_only=True)
class ASI(Method):
    """An append-only library; the actor sees every skill.

    Attributes:
        style: `original` follows the authors' program: short functions, of which `find_excess` has the
            bounds, from an episode's successful calls alone. `free` has no upper bound and shows whole turns.
        successful: selects the episodes from which skills are induced, see `select_successful`.
        overflow: handling of an episode that does not fit the context. `skip` induces nothing from it;
            `discard` changes nothing in the whole sleep, as in the paper.
        sees: what the inducer sees of an outcome.
    """

    style: Style = "original"
    successful: Successful = "better_half"
    overflow: Overflow = "discard"
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
        successful = select_successful(newest_batch(history), self.successful)
        if not successful:
            tools.fell_short("no successful episode to learn from")
        for played in successful:
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
            if self.style == "original" and (excess := find_excess(library, source)):
                tools.edits.extend(Edit("write", name, why) for name, why in excess.items())
                raise ToolError(
                    f"nothing was submitted: {'; '.join(excess.values())}. Submit all functions again"
                )
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
            original=self.style == "original",
            bounds=(MOST_LINES, LEAST_CALLS, MOST_CALLS),
        )
        plain = msgspec.to_builtins(played)
        user = render(
            __package__,
            "asi/user",
            original=self.style == "original",
            library=library,
            headline=headline(plain, has_task=False),
            task=task_line(plain),
            calls=_successful_calls(played),
            opening=opening(plain),
            turns=["\n".join(lines) for lines in turns(plain)],
        )
        return [Message("system", system), Message("user", user)]


def _successful_calls(played: Trajectory) -> list[str]:
    """Return the actor's calls of primitives and skills that did not fail, without what they returned."""
    ran = [turn.executed for turn in played.turns if turn.executed is not None]
    return [write_call(each.name, each.arguments) for each in ran if each.kind != "tool" and not each.failed]
