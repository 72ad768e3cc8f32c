"""One episode from its opening to its end, whatever that is."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from envs import Task
from serving.conversation import Conversation
from serving.errors import RequestFailed, RequestRefused
from serving.tokens.tools import ToolSpec
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.agents.loop import AgentLimits
from speedrunner.agents.stage import Stage, Watch
from speedrunner.hosts.host import Host, HostError, HostFault
from speedrunner.store.labels import Labels
from speedrunner.store.records import Ending, Message, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Episode:
    """One planned episode: `key` within the run, the policy that plays it, the number of this attempt."""

    key: str
    task: Task
    policy: int
    attempt: int = 1


Play = Callable[[ActorSpec, Stage], Awaitable[Ending]]
"""How an episode is played once its world is open."""


def unwatched(key: str, conversation: Conversation, turn: Turn | None) -> None:
    """Nobody looks."""


async def act(spec: ActorSpec, stage: Stage) -> Ending:
    """Let the actor play alone."""
    return await stage.act(spec)


async def play_episode(
    actor: Actor,
    episode: Episode,
    spec: ActorSpec,
    host: Host,
    labels: Labels,
    *,
    play: Play = act,
    watch: Watch = unwatched,
) -> Trajectory:
    """Play one episode to its end.

    Faults of ours that concern this episode alone are its ending; what concerns the whole run (a dead engine,
    a spending cap, a full disk) is raised.

    Args:
        spec: what the actor gets; its library can be called from the start.
        labels: of the ledger rows; the episode's key and attempt join those that name none.
        play: a method's way.

    Raises:
        EngineDead, SpendingCapReached: see `serving.errors`.
    """
    started, began = time.time(), time.monotonic()
    trajectory = Trajectory(
        episode=episode.key,
        task=episode.task,
        policy=episode.policy,
        attempt=episode.attempt,
        turns=[],
        ending=Ending.ENVIRONMENT_ERROR,
        outcome=None,
        started=round(started, 3),
    )
    if labels.episode is None:
        labels = msgspec.structs.replace(labels, episode=episode.key, attempt=episode.attempt)
    try:
        opening = await host.reset(episode.task, spec.library.module(), actor.env.limits.actions)
        trajectory.prompt_hash = _digest(actor.messages(spec, opening), actor.tools(spec))
        limits = AgentLimits(actor.llm_calls, began + actor.limits.wall_clock_s)
        stage = Stage(actor, host, trajectory, opening, limits, labels, watch)
        trajectory.ending = await play(spec, stage)
    except HostError as error:
        trajectory.ending = Ending.ENVIRONMENT_ERROR
        trajectory.error = error.traceback if isinstance(error, HostFault) else str(error)
    except (RequestFailed, RequestRefused) as error:
        trajectory.ending = Ending.ENGINE_ERROR
        trajectory.error = "".join(traceback.format_exception(error))
    if not trajectory.ending.is_fault:
        trajectory.outcome = host.outcome
    trajectory.seconds = round(time.monotonic() - began, 3)
    return trajectory


def _digest(messages: list[Message], tools: list[ToolSpec]) -> str:
    return hashlib.sha256(msgspec.json.encode([messages, tools])).hexdigest()
