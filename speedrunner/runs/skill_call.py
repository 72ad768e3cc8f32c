"""Call one skill of a module in the sandbox, on a fresh episode."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from envs import Task
from serving.tokens.tools import ToolCall
from speedrunner.library.library import Library
from speedrunner.library.rules import MODULE_BYTES, InvalidSkill
from speedrunner.runs.setup import Setup
from speedrunner.store.records import CallNode, Termination
from speedrunner.workers.env_worker import WorkerError

CALL_WALL_S = 300.0
"""Maximum seconds of the call if `sandbox.call_wall_s` is null."""


class SkillCall(msgspec.Struct, kw_only=True):
    """A call of a skill and its result.

    Attributes:
        result: the skill's return value.
        error: why it was refused, failed or was killed; `None` if it returned.
        calls: the tree of all executed calls; `None` if it was refused.
        actions: primitives that advanced the world.
        done: whether the environment has ended the episode.
        score: current score of the episode, in [0, 1]; `None` without an episode.
    """

    result: Any = None
    error: str | None = None
    calls: CallNode | None = None
    actions: int = 0
    done: bool = False
    score: float | None = None


async def call_skill(setup: Setup, task: Task, source: str, skill: str, arguments: str) -> SkillCall:
    """Validate a module and call one of its skills, which may be private.

    Args:
        source: the module.
        arguments: arguments of the call, as a JSON object.

    Returns:
        The result. A refused module, a refused call and an environment error are results, too.
    """
    sandbox = setup.config.sandbox
    score: float | None = None
    try:
        async with setup.workers(1) as pool:
            library, call = await asyncio.to_thread(_check_call, setup, source, skill, arguments)
            async with pool.worker() as worker:
                await worker.reset(task, library.module(), setup.env.limits.actions)
                score = worker.outcome.score if worker.outcome else None
                executed = await worker.execute(
                    call, sandbox.call_wall_s or CALL_WALL_S, sandbox.call_actions
                )
    except (InvalidSkill, WorkerError) as error:
        return SkillCall(error=str(error), score=score)
    return SkillCall(
        result=executed.node.result,
        error=executed.node.error,
        calls=executed.node,
        actions=executed.actions,
        done=executed.termination in (Termination.SUCCESS, Termination.FAILURE),
        score=executed.outcome.score,
    )


def _check_call(setup: Setup, source: str, skill: str, arguments: str) -> tuple[Library, ToolCall]:
    """Return the module as a library that shows the skill, and the call, parsed as strictly as a model's."""
    library = Library(setup.env.primitives).write(source, sleep=0, public=False, limit=MODULE_BYTES)
    library = library.set_visibility(skill, public=True, sleep=0)
    try:
        given = msgspec.json.decode(arguments.encode(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidSkill(f"the arguments must be a JSON object: {error}") from None
    if problem := library.tool(skill).problem_with(given):
        raise InvalidSkill(f"{skill}: {problem}")
    return library, ToolCall(skill, given)
