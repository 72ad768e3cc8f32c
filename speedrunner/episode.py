"""One episode, printed as it is played."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from envs import Task
from serving.conversation import Conversation, TokenConversation
from serving.service import serve_model
from speedrunner.actor import Actor, Episode
from speedrunner.hosts.pool import HostPool
from speedrunner.progress import Progress
from speedrunner.records import Turn
from speedrunner.run import Setup
from speedrunner.trajectory_text import headline, turn_lines


def chosen_task(setup: Setup) -> Task:
    """The task that `task.name` and `task.index` name; what they leave out is the first training task's."""
    wanted, tasks = setup.config.task, setup.split.train
    named = [task for task in tasks if wanted.name in (None, task.name)]
    name = wanted.name or tasks[0].name
    index = wanted.index if wanted.index is not None else (named or tasks)[0].index
    return Task(setup.config.env.name, name, index)


async def play_episode(setup: Setup, console: Console, *, show_ids: bool) -> None:
    """Start the model, play the chosen task with the initial policy, and print all that is said.

    Args:
        show_ids: print token ids too (tokens route).

    Raises:
        ServingError, HostError, EnvironmentFault: something failed.
    """
    task = chosen_task(setup)
    policy = setup.initial_policy()
    turns = 0

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    def watch(conversation: Conversation, turn: Turn | None) -> None:
        nonlocal turns
        if turn is None:
            if isinstance(conversation, TokenConversation):
                say(f"--- prompt, as the model's template renders it\n{conversation.transcript.text}")
                say(f"--- tag that each answer must match\n{conversation.tag}")
            return
        turns += 1
        if turns > 1 or not isinstance(conversation, TokenConversation):
            for message in turn.messages:
                say(f"--- {message.role}\n{message.content}")
        usage = turn.usage
        say(
            f"--- model ({turn.seconds:.2f} s; tokens: {usage.uncached} uncached, {usage.cached} cached,"
            f" {usage.reasoning} reasoning, {usage.action} action)\n{turn.text}"
        )
        if show_ids and isinstance(conversation, TokenConversation):
            all_ids = conversation.transcript.ids
            say(f"--- all {len(all_ids)} token ids so far\n{all_ids}")
        for line in turn_lines(turns, turn):
            say(line)

    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-episode-") as folder,
        Progress(console, total=1, finished=0) as progress,
    ):
        async with (
            serve_model(
                setup.card,
                setup.service_options(),
                write_row=lambda row: None,
                log=Path(folder) / "server.log",
                prices=setup.prices,
                say=progress.say,
                waiting=progress.waiting,
            ) as service,
            HostPool(1, setup.config.env.name, setup.config.env.options, sandbox=setup.sandbox()) as pool,
            pool.host() as host,
        ):
            actor = Actor(setup.env, service.model, setup.episode_limits())
            spec = setup.method.agent(policy, task, setup.env)
            trajectory = await actor.play(Episode("episode", task, 0), spec, host, {}, watch)
            say(f"=== {headline(trajectory)}")
            if trajectory.error:
                say(trajectory.error)
            usage = trajectory.usage
            say(
                f"{usage.uncached} uncached, {usage.cached} cached, {usage.completion} output tokens;"
                f" {service.meter.prices.cost(usage):.6f} USD"
            )
