"""Agent Skill Induction, online (paper, section 4.1 and Appendix E): functions abstracted from successes.

After Wang et al., "Inducing Programmatic Skills for Agentic Tasks" (2025), without verification by replay;
`ASIReplay` has it.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from speedrunner.agents.reading import opening, task_line, turns, write_call
from speedrunner.library.definition import Definition, find_dependencies, read_text
from speedrunner.methods import (
    ActorSpec,
    Edit,
    History,
    InvalidSkill,
    Library,
    Method,
    Policy,
    Sees,
    SleepTools,
    Termination,
    Trajectory,
    function_names,
    headline,
    newest_batch,
    render,
    shared_parts,
)
from speedrunner.plain.console import shorten

MOST_LINES, LEAST_CALLS, MOST_CALLS = 10, 2, 5
"""Bounds of a function in the style of the original: lines of code after its docstring, without comments;
calls of any function as they are written, also in a loop; of these, calls of primitives and skills."""

THOUGHT_CHARS = 200
"""Maximum characters of the sentence of a thought that an inducer in the style of the original sees."""

TAKEN = "the library already has this name, and its skills cannot be changed"


def select_successful(batch: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the episodes of a batch from which skills are induced: successes, and scores above 0 of at least
    the batch's median. With scores of only 0 or 1, these are the successes."""
    outcomes = [played.outcome for played in batch if played.outcome is not None]
    bar = statistics.median([outcome.score for outcome in outcomes]) if outcomes else 0.0
    return [
        played
        for played in batch
        if played.outcome is not None and (played.outcome.success or 0 < played.outcome.score >= bar)
    ]


def find_excess(function: Definition, known: Collection[str]) -> str:
    """Return why a function breaks the bounds of the original; "" if it does not.

    Args:
        known: names of primitives and skills.
    """
    nodes = [*ast.walk(function.tree)]
    body = next(node.body for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lines = sum(len(ast.unparse(statement).split("\n")) for statement in body[1:])
    calls = sum(isinstance(node, ast.Call) for node in nodes)
    steps = sum(name in known for name, _, _ in function.names.reads)
    why = [f"{lines} lines of code (at most {MOST_LINES})"] * (lines > MOST_LINES)
    why += [f"{calls} calls (at least {LEAST_CALLS})"] * (calls < LEAST_CALLS)
    why += [f"{steps} calls of primitives or skills (at most {MOST_CALLS})"] * (steps > MOST_CALLS)
    return f"{function.name} has {' and '.join(why)}" if why else ""


def append_skills(
    library: Library, source: str, sleep: int, *, bounded: bool = False
) -> tuple[Library, list[Edit]]:
    """Add the functions of a text that are new and valid, all of them public; refuse the others.

    A function is added together with the functions of the text that it needs, or not at all.

    Args:
        bounded: whether a function must keep the bounds of the original.

    Returns:
        The library, and an edit for each function, or for several that need each other.
    """
    try:
        text = read_text(source)
    except InvalidSkill as error:
        return library, [Edit("write", name, str(error)) for name in function_names(source) or ["(none)"]]
    named = {definition.name: definition for definition in text if definition.kind != "other"}
    functions = [name for name, definition in named.items() if definition.kind == "function"]
    edits = [Edit("write", name, TAKEN) for name in functions if name in library.named]
    needs = {name: find_dependencies(name, named) for name in functions}
    known = {*library.by_name, *(primitive.name for primitive in library.primitives), *functions}
    excess = {name: find_excess(named[name], known) if bounded else "" for name in functions}
    for name in sorted(set(functions) - library.named.keys(), key=lambda name: (len(needs[name]), name)):
        if name in library.named:  # it was added together with another function
            continue
        there = {need for need in needs[name] if need in functions and need in library.named}
        group = needs[name] - there
        names = ", ".join(function for function in functions if function in group)
        text_of_group = "\n\n\n".join(definition.source for definition in text if definition.name in group)
        edit = Edit("write", names, source=text_of_group, public=True)
        try:
            if other := [need for need in sorted(there) if library.named[need] != named[need]]:
                raise InvalidSkill(f"{name} needs {', '.join(other)}: {TAKEN}")
            if why := [excess[need] for need in functions if need in group and excess[need]]:
                raise InvalidSkill("; ".join(why))
            library = library.apply(edit, sleep=sleep)
        except InvalidSkill as error:
            edits.append(Edit("write", name, str(error)))
        else:
            edits.append(edit)
    return library, edits or [Edit("write", "(none)", "the source must define a function at the top level")]


@dataclass(kw_only=True)
class ASI(Method):
    """An append-only library; the actor sees every skill.

    Attributes:
        style: `original` follows the authors' program: short functions, of which `find_excess` has the
            bounds, from an episode's successful calls, each with a sentence of its thought. `free` has no
            bounds and shows whole turns.
        sees: what the inducer sees of an outcome.
    """

    style: Literal["original", "free"] = "original"
    sees: Sees = "score"

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer propose functions for each successful episode of the batch, one after another.

        Raises:
            ServingError, SandboxError: the sleep continues when the run resumes.
        """
        library = tools.library(policy)
        successful = select_successful(newest_batch(history))
        if not successful:
            tools.fell_short("no successful episode to learn from")
        for played in successful:
            proposed = await self._propose(library, played, tools)
            overflowed = any(agent.termination is Termination.CONTEXT_OVERFLOW for agent in tools.agents)
            if overflowed:  # as in the paper, nothing changes in the whole sleep
                tools.take_back("another episode of the batch overflowed the context")
                return policy
            if proposed.strip():
                is_bounded = self.style == "original"
                grown, edits = append_skills(library, proposed, tools.sleep, bounded=is_bounded)
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

        string_tokens = tools.model.model_config.role("inducer").string_tokens
        system = render(
            __package__,
            "asi/system",
            **shared_parts(tools.env, tools.limits, string_tokens),
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
        await tools.ask("inducer", system, user, propose_functions)
        return proposed


class ASIReplay(ASI):
    """ASI that keeps a new skill only if the agent calls it while solving the inducing task again (paper,
    Appendix G, "Offline Continual Learning").

    It replays training tasks, which online methods must not do: a comparison, not a competitor.

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


def _successful_calls(played: Trajectory) -> list[str]:
    """Return the actor's calls of primitives and skills that did not fail, without what they returned. The
    first sentence of the thought behind a call precedes it as a comment."""
    lines = []
    for turn in played.turns:
        call = turn.executed
        if call is None or call.kind == "tool" or call.failed:
            continue
        thought = " ".join(turn.reasoning.split())
        sentence = re.split(r"(?<=[.!?])\s", thought, maxsplit=1)[0]
        lines += [f"# {shorten(sentence, THOUGHT_CHARS)}"] * bool(sentence)
        lines.append(write_call(call.name, call.arguments))
    return lines


def _without(library: Library, names: set[str]) -> Library:
    """Delete skills, except those that remaining skills need."""
    left = set(names)
    while free := sorted(name for name in left if not library.callers(name)):
        for name in free:
            library = library.delete(name)
        left.difference_update(free)
    return library
