"""Play one episode and print it live."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from serving.apis.completions import TokenConversation
from serving.conversation import Conversation
from serving.options import check_keys
from speedrunner.agents.actor import Actor
from speedrunner.agents.episode import Episode, play_episode
from speedrunner.agents.reading import turn_lines
from speedrunner.agents.texts import answer_lines, message_lines, short_headline
from speedrunner.config.named import choose_task
from speedrunner.plain.console import visible
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.progress import Progress
from speedrunner.runs.run import deploy_models
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Labels, Turn


async def show_episode(setup: Setup, console: Console) -> None:
    """Start the model, play the chosen task with the initial policy, and print the whole conversation.

    Raises:
        ServingError, WorkerError, EnvironmentFault: the engine, a worker or the environment failed.
    """
    check_keys(setup.services)
    task = choose_task(setup.config)
    policy = setup.initial_policy()
    turns = 0

    def say(text: str) -> None:
        console.print(visible(text), soft_wrap=True)

    def watch(key: str, conversation: Conversation, turn: Turn | None) -> None:
        nonlocal turns
        if turn is None:
            if isinstance(conversation, TokenConversation):
                say(f"--- prompt, as the model's template renders it\n{conversation.transcript.text}")
                say(f"--- tag that each answer must match\n{conversation.tag}")
            return
        turns += 1
        if turns > 1 or not isinstance(conversation, TokenConversation):
            for line in message_lines(turn):
                say(line)
        for line in answer_lines(turn):
            say(line)
        for line in turn_lines(turns, msgspec.to_builtins(turn)):
            say(line)

    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-episode-") as folder,
        Progress(console, total=1, finished=0) as progress,
    ):
        async with (
            setup.workers(1) as pool,
            pool.worker() as worker,
        ):
            spec = setup.method.agent(policy, task, setup.env)
            # Reports a missing task before a server starts.
            await worker.reset(task, spec.library.module(), setup.env.limits.actions)
            logs = Path(folder) / "server.log", Path(folder) / "inducer_server.log"
            async with (
                deploy_models(setup, *logs, progress) as engines,
                engines.models(setup, lambda row: None) as (model, others),
            ):
                trajectory = await play_episode(
                    Actor(setup.env, model, setup.config, others),
                    Episode("episode", task, 0),
                    spec,
                    worker,
                    Labels(),
                    play=lambda context, spec: setup.method.play(policy, spec, context),
                    watch=watch,
                )
                say(f"=== {short_headline(trajectory)}")
                if trajectory.termination.is_fault:
                    raise RunStopped(f"the episode ended by {trajectory.termination}: {trajectory.error}")
                usage = trajectory.usage
                played_by = ((model if turn.role == "actor" else others, turn) for turn in trajectory.turns)
                cost = sum(by.engine.meter.prices.cost(turn.usage) for by, turn in played_by)
                say(
                    f"{usage.uncached} uncached, {usage.cached} cached, {usage.completion} output tokens;"
                    f" {cost:.6f} USD"
                )
