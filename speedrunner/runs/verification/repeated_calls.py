"""Repeat every recorded call in fresh worlds: equal calls must have equal results."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec

from serving.tokens.tools import ToolCall
from speedrunner.agents.actor import actor_view
from speedrunner.methods.method_base import Method
from speedrunner.plain.console import Status
from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.checked_run import (
    CheckedRun,
    Differences,
    RecordedEpisode,
    contrast,
    turn_of,
)
from speedrunner.store.records import CallNode, Hunk, Termination, Trajectory, apply_hunks
from speedrunner.workers.env_worker import EnvWorker, WorkerError
from speedrunner.workers.worker_messages import Executed

PATIENCE_S, PATIENCE, MOST_PATIENCE_S = 60.0, 10, 600.0
"""Seconds that a repeated call may take: the first value, or the recorded time multiplied by the second if
that is more. The third is the maximum, as the recorded time may be wrong."""

BY_THE_CLOCK = "ended by the clock, or after such a call"
BY_A_FAULT = "ended by an infrastructure error"
BY_OTHER_TEXTS = "first prompts, whose texts or limits have changed since"
BY_ITS_PROCESS = "the process of the skills ended in another way, or after such a call"
"""Why calls and prompts are left out."""

ADDRESS = re.compile(rb"0x[0-9a-f]{6,16}")
"""An object's memory address, which a skill may have returned; it is ignored."""

CLOCK = "TimeLimitReached:"
"""Start of the errors of calls that a time limit ended."""

KILLED = re.compile(r"\ASkillProcessEnded:|; (?:it|the skill process) was killed; ")
"""Marks errors of calls whose process ended or was killed; a busy machine may end them differently."""

DECIDED = (Termination.SUCCESS, Termination.FAILURE, Termination.ACTION_LIMIT)
"""Terminations that the world decides."""

Asked = CallNode | list[Hunk]
"""An operation on a world: a call as recorded, or other skills."""


class _Differs(Exception):
    """A repeated call had another result; the rest of the episode is not compared."""

    def __init__(self, what: str, turn: int | None = None) -> None:
        super().__init__(what)
        self.turn = turn


class _LeftOut(Exception):
    """The rest of an episode cannot be repeated."""

    def __init__(self, reason: str, calls: int) -> None:
        super().__init__(reason)
        self.calls = calls


async def repeat_calls(checked: CheckedRun, status: Status) -> Finding:
    """Repeat the calls of all episodes, as many at once as there are cores.

    Raises `WorkerError`, `StorageError`.
    """
    differences, counts = Differences("replay"), Counter[str]()
    cores, episodes = len(os.sched_getaffinity(0)), checked.episodes()

    async def work() -> None:
        for played in episodes:  # shared: each task takes the next one
            episode = played.trajectory
            counts["episodes"] += 1
            # A call in which the episode ended has no recorded result.
            lost = sum(each.call is not None and each.executed is None for each in episode.turns)
            differences.left_out += Counter({BY_A_FAULT: lost, BY_OTHER_TEXTS: int(checked.has_other_texts)})
            async with pool.worker() as worker:
                try:
                    async for _ in _repeat_episode(checked, played, worker):
                        counts["calls"] += 1
                except _Differs as error:
                    where = episode.episode
                    differences.add(where if error.turn is None else turn_of(where, error.turn), str(error))
                except _LeftOut as error:
                    differences.left_out[str(error)] += error.calls
            status(f"replayed {counts['calls']} calls of {counts['episodes']} episodes")

    async with checked.setup.workers(cores) as pool:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(cores):
                    group.create_task(work())
        except* Exception as error:
            raise error.exceptions[0] from None
    return differences.finding(f"{counts['calls']} calls of {counts['episodes']} episodes")


async def _repeat_episode(
    checked: CheckedRun, played: RecordedEpisode, worker: EnvWorker
) -> AsyncIterator[None]:
    """Repeat the calls of one episode; yield after each call. Raises `_Differs`, `_LeftOut`."""
    episode, setup = played.trajectory, checked.setup
    asked = _list_operations(played)
    spec = checked.spec(played)
    module = apply_hunks(spec.library.module(), episode.module or [])
    last: Executed | None = None
    try:
        seed = checked.run.state.skill_seed(episode.task)
        opening = await worker.reset(episode.task, module, setup.env.limits.actions, seed)
        if episode.module is None and not checked.has_other_texts:
            messages = spec.messages(setup.env, opening, setup.config.run.wording)
            if spec.prompt_hash(setup.env, messages) != episode.prompt_hash:
                raise _Differs("the actor's first prompt does not have its recorded digest")
            is_plain = type(setup.method).play is Method.play  # other methods may ask for something else
            if is_plain and episode.turns and episode.turns[0].messages != messages:
                raise _Differs("its messages are not those of its policy and task", 0)
        for place, (turn, recorded) in enumerate(asked):
            if isinstance(recorded, list):
                module = apply_hunks(module, recorded)
                await worker.load(module)
                continue
            left = sum(isinstance(each, CallNode) for _, each in asked[place:])
            if any((each.error or "").startswith(CLOCK) for each in (recorded, *recorded.below())):
                raise _LeftOut(BY_THE_CLOCK, left)
            shown = episode.turns[turn] if turn is not None else None
            directly = shown is not None and shown.executed is recorded
            call = shown.call if shown is not None and directly else None
            if call is None or (spec.searches and call.arguments.get("name") == recorded.name):
                call = ToolCall(recorded.name, recorded.arguments)  # that of a skill, which `call_skill` made
            patience_s = min(max(PATIENCE_S, PATIENCE * recorded.seconds), MOST_PATIENCE_S)
            last = await worker.execute(call, patience_s, setup.config.sandbox.call_actions)
            if what := find_first_difference(recorded, last.node):
                if KILLED.search(recorded.error or "") or KILLED.search(last.node.error or ""):
                    raise _LeftOut(BY_ITS_PROCESS, left)
                raise _Differs(what, turn)
            if turn is not None and directly:
                _check_reply(episode, turn, actor_view(last, setup.config.run.reply_chars))
            yield
    except WorkerError as error:
        if asked or episode.termination is not Termination.ENVIRONMENT_ERROR:
            raise _Differs(f"the environment broke: {error}") from error
    else:
        _check_end(episode, [each for _, each in asked if isinstance(each, CallNode)], last, worker)


def _list_operations(played: RecordedEpisode) -> list[tuple[int | None, Asked]]:
    """Return the operations on an episode's world, and the turns that show them. Raises as
    `_repeat_episode` does."""
    episode, turns = played.trajectory, played.trajectory.turns
    operations: list[tuple[int | None, Asked]] = []
    for step in episode.steps:
        if step.turn is None:
            operations.append((None, step.call or step.load or []))
            continue
        node = turns[step.turn].executed if 0 <= step.turn < len(turns) else None
        if node is None:
            raise _Differs(f"turn {step.turn + 1} should show a call")
        operations.append((step.turn, node.calls[0] if node.kind == "tool" and node.calls else node))
    acted = ((n, turn.executed) for n, turn in enumerate(turns) if turn.executed)
    left = {n for n, executed in acted if executed.kind != "tool" or executed.calls}
    if left := left - {turn for turn, _ in operations}:
        raise _Differs("its call is not among the operations on the world", min(left))
    return operations


def find_first_difference(recorded: CallNode, now: CallNode, path: str = "") -> str | None:
    """Return the first difference between two trees of calls, in the order of time; seconds are ignored."""
    path += recorded.name
    return (
        _find_difference(recorded, now, path, ("name", "kind", "arguments"))
        or next(
            filter(None, map(partial(find_first_difference, path=f"{path} > "), recorded.calls, now.calls)),
            None,
        )
        or _find_difference(recorded, now, path, ("result", "error", "actions", "omitted", "calls"))
    )


def _find_difference(recorded: CallNode, now: CallNode, path: str, names: Sequence[str]) -> str | None:
    """Return the first of these attributes that differs between two calls; for calls below, their number."""
    for name in names:
        one, other = getattr(recorded, name), getattr(now, name)
        if name == "calls":
            one, other = len(one), len(other)
        if one != other and _plain(one) != _plain(other):
            return f"{path}, {name}: {contrast(one, other)}"
    return None


def _plain(value: Any) -> bytes:
    return ADDRESS.sub(b"", msgspec.json.encode(value))


def _check_reply(episode: Trajectory, number: int, reply: str) -> None:
    """Raise `_Differs` if the result of a call is not the text that the actor read next."""
    turn = episode.turns[number]
    later = (each for each in episode.turns[number + 1 :] if each.conversation == turn.conversation)
    following = next(later, None)
    if following is None and not isinstance(turn.unread, str):
        return  # it ended by a fault
    said = [("tool", turn.unread)] if following is None else [(m.role, m.content) for m in following.messages]
    if said != [("tool", reply)] and _plain(said) != _plain([("tool", reply)]):
        content = "".join(str(content) for _, content in said)
        raise _Differs(f"the reply that the actor read: {contrast(content, reply)}", number)


def _check_end(episode: Trajectory, calls: list[CallNode], last: Executed | None, worker: EnvWorker) -> None:
    """Raise `_Differs` if an episode's termination or final state is different."""
    decided = last.termination if last is not None else None
    if decided != (episode.termination if episode.termination in DECIDED else None):
        ends = decided or "no termination"
        raise _Differs(f"its recorded termination is {episode.termination}, and the world gives {ends}")
    if episode.termination.is_fault and episode.outcome is None:
        return
    if worker.outcome != episode.outcome:
        raise _Differs(f"outcome: {contrast(episode.outcome, worker.outcome)}")
    acted = sum(each.actions for each in calls)
    if last is not None and last.actions != acted:
        raise _Differs(f"{acted} actions are recorded, and it takes {last.actions}")
