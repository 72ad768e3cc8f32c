"""`speedrunner episode`: play one episode and print it live."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from envs import Task
from serving.apis.completions import TokenConversation
from serving.conversation import Conversation
from serving.options import running_endpoint
from speedrunner.agents.actor import Actor
from speedrunner.agents.episode import Episode, Watch, play_episode
from speedrunner.agents.reading import turn_lines
from speedrunner.agents.texts import answer_lines, message_lines, short_headline
from speedrunner.cli.command import Overrides, carry_out
from speedrunner.cli.output import SafeConsole
from speedrunner.cli.run_summary import configure_logging
from speedrunner.config.compose import compose
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.progress import Progress
from speedrunner.runs.servers import fit_model, open_client, serve_model
from speedrunner.runs.setup import Setup, set_up
from speedrunner.store.records import Labels, Turn


def episode(overrides: Overrides = None) -> None:
    """Play one episode and print everything.

    It is printed with the prompt, the grammar, and each answer and reply. With
    run.start_from=RUN[:VERSION], a stored policy plays it. Nothing is recorded.

    Example: speedrunner episode env=babyai task.index=7 model=tiny-random
    """
    config = compose(overrides or [])
    configure_logging(config)
    setup, console = set_up(config), SafeConsole()
    carry_out(lambda shutdown: _play_episode(setup, console))


async def _play_episode(setup: Setup, console: SafeConsole) -> None:
    """Play the chosen task once with the initial policy; the logs of servers are in a temporary folder."""
    running_endpoint(*setup.service)  # raises if an API key is missing
    method, task, policy = setup.method, choose_task(setup), setup.initial_policy()
    spec = method.agent(policy, task, setup.env).with_part(setup.config.library)

    with (
        tempfile.TemporaryDirectory(prefix="speedrunner-episode-") as folder,
        Progress(console, total=1, finished=0) as progress,
    ):
        async with setup.workers(1) as pool, pool.worker() as worker:
            # Reports a missing task before a server starts.
            await worker.reset(task, spec.library.module(), setup.env.limits.actions)
            fitted = await fit_model(setup, progress.say)
            async with (
                serve_model(fitted, Path(folder, "server.log"), progress) as deployment,
                open_client(deployment, fitted, lambda row: None) as model,
            ):
                played = await play_episode(
                    Actor(setup.env, model, setup.config),
                    Episode("episode", task, policy=0),
                    spec,
                    worker,
                    Labels(phase="test", policy=0),
                    play=partial(method.play, policy),
                    watch=_print_turns(console.say),
                )
    console.say(f"=== {short_headline(played)}")
    if played.termination.is_fault:
        raise RunStopped(f"the episode ended by {played.termination}: {played.error}")
    usage = played.usage
    cost = sum(setup.prices.cost(turn.usage) for turn in played.turns)
    console.say(
        f"{usage.uncached} uncached, {usage.cached} cached, {usage.completion} output tokens; {cost:.6f} USD"
    )


def choose_task(setup: Setup) -> Task:
    """Return the task of `task.name` and `task.index`.

    Missing values come from the first training task (with that name, if one is given). For a name without
    training tasks, the index is 0.
    """
    name, index = setup.config.task.name, setup.config.task.index
    named = (task for task in setup.split.train if name in (None, task.name))
    first = next(named, Task(setup.env.name, name or "", 0))
    return Task(first.env, first.name, first.index if index is None else index)


def _print_turns(say: Callable[[str], None]) -> Watch:
    """Return a spectator that prints the prompt of the first conversation as tokens, and all turns."""
    turns = 0

    def watch(key: str, conversation: Conversation, turn: Turn | None) -> None:
        nonlocal turns
        if turn is None:
            if isinstance(conversation, TokenConversation):
                say(f"--- prompt, as the model's template renders it\n{conversation.transcript.text}")
                say(f"--- tag that each answer must match\n{conversation.tag}")
            return
        turns += 1
        is_shown = turns == 1 and isinstance(conversation, TokenConversation)
        lines = [] if is_shown else message_lines(turn)
        for line in (*lines, *answer_lines(turn), *turn_lines(turns, msgspec.to_builtins(turn))):
            say(line)

    return watch
