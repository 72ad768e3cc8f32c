"""An agent that works between batches: it reads the stored trajectories, with a code interpreter or as text,
and changes what the actor has learned.

Annotations are evaluated here, without `from __future__ import annotations`: subclasses inherit the options,
and texts would be read with the names of their modules.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from speedrunner.agents.reading import summary_lines
from speedrunner.agents.texts import describe_loop, describe_skill_calls
from speedrunner.config.schema import AtLeastOne
from speedrunner.methods import (
    History,
    Library,
    Message,
    Method,
    Sees,
    SleepTools,
    Tool,
    Toolbox,
    headline,
    render,
    shared_parts,
    trajectory_text,
)
from speedrunner.methods.speedrunner.interpreter import CODE_WALL_S, OUTPUT_CHARS, Interpreter

READING_SHARE = 0.5
"""Share of the model's context for trajectories if there is no code interpreter."""

SLEEPS_SHOWN = 5
"""Number of latest sleeps that the prompt summarizes."""


def finish(summary: str) -> str:
    """Finish this sleep. `summary` says in a few sentences what you changed and why."""
    return "Your changes were stored."


@dataclass(kw_only=True)
class Inducer(Method):
    """A method whose sleep is the work of one agent on the recorded trajectories.

    Attributes:
        inducer_calls: requests of one sleep (paper, Appendix A.1: 100).
        interpreter: `off` puts the batch's trajectories in the context instead (section 6.1).
        sees: what the inducer sees of an outcome.
    """

    inducer_calls: AtLeastOne = 100
    interpreter: Literal["on", "off"] = "on"
    sees: Sees = "score"

    def __post_init__(self) -> None:
        self.sleep_calls = self.inducer_calls

    async def work(
        self,
        messages: list[Message],
        offered: Sequence[Tool],
        history: History,
        tools: SleepTools,
        draft: Callable[[], Library],
    ) -> None:
        """Let the inducer work with these tools and its interpreter. If calls, context or time are used up,
        the changes until then count.

        Args:
            draft: returns the library that the interpreter can import.

        Raises:
            ServingError: the engine failed.
            SandboxError: the inducer's code cannot be run here.
        """
        async with AsyncExitStack() as stack:
            if self.interpreter == "on":
                folders = await asyncio.to_thread(history.files)  # copies may be large
                interpreter = Interpreter(tools.actor.config.sandbox, folders, tools.env.primitives, draft)
                offered = [(await stack.enter_async_context(interpreter)).execute_code, *offered]
            await tools.run_agent("inducer", messages, Toolbox(offered, finish), self.inducer_calls)
        if tools.error is not None:
            tools.error += "; the edits accepted before that are kept"

    def system_message(
        self, template: str, history: History, tools: SleepTools, wording: int, **learned: Any
    ) -> Message:
        """Return the instructions from a template.

        Args:
            learned: what the template needs besides the shared parts and the session, or in their place.
        """
        string_tokens = tools.model.model_config.role("inducer").string_tokens
        text = render(
            __package__,
            template,
            wording,
            **shared_parts(tools.env, tools.limits, string_tokens) | learned,
            interpreter=self.interpreter == "on",
            memory_mb=tools.actor.config.sandbox.memory_mb,
            wall_s=f"{CODE_WALL_S:g}",
            output_chars=OUTPUT_CHARS,
            sees=self.sees,
            earlier=history.earlier,
        )
        return Message("system", text)

    def user_message(self, template: str, history: History, tools: SleepTools, **learned: Any) -> Message:
        """Return the inputs of one sleep from a template.

        Args:
            learned: what the template needs besides the episodes, the earlier sleeps and the budget.
        """
        batch, model = history.batch(history.batches()[-1]), tools.model
        episodes = (
            (headline(msgspec.to_builtins(each)), describe_skill_calls(each.turns), describe_loop(each.turns))
            for each in batch
        )
        context, texts = model.model_config.context, list[str]()
        if self.interpreter == "off":
            wholes = [trajectory_text(played) for played in batch]
            texts, share = fit_episodes(wholes, int(context * READING_SHARE), model.count_tokens)
            tools.shown = round(share, 4)
        text = render(
            __package__,
            template,
            sleep=tools.sleep,
            batch=["; ".join(filter(None, parts)) for parts in episodes],
            history=history.count(),
            earlier_runs=history.earlier,
            environment=history.environment,
            interpreter=self.interpreter == "on",
            texts=texts,
            earlier=[
                line
                for record in history.sleeps(tools.sleep, SLEEPS_SHOWN)
                for line in (*summary_lines(msgspec.to_builtins(record)), *_effect(record.sleep, history))
            ],
            calls=model.model_config.role("inducer").calls(self.inducer_calls),
            context=context,
            **learned,
        )
        return Message("user", text)


def _effect(sleep: int, history: History) -> list[str]:
    """Return the line on the batches before and after a sleep; none without scored episodes in both."""
    before, after = history.means(sleep - 1), history.means(sleep)
    if before is None or after is None:
        return []
    return [
        f"  batches before and after: mean score {before[0]:.2f} and {after[0]:.2f},"
        f" LLM calls an episode {before[1]:.1f} and {after[1]:.1f}"
    ]


def fit_episodes(
    texts: Sequence[str], room_tokens: int, count_tokens: Callable[[str], int]
) -> tuple[list[str], float]:
    """Fit the texts of a batch into a room: whole if possible, else with the middle of the longest left out.

    Each text gets an equal share of the room; shorter texts leave the rest of theirs to the others.

    Returns:
        The texts, and their tokens as a share of those of the whole texts.
    """
    share = min(room_tokens / max(count_tokens("\n".join(texts)), 1), 1.0)
    room = most = int(sum(map(len, texts)) * share)
    for place, size in enumerate(sorted(map(len, texts))):
        most = room // (len(texts) - place)
        if size > most:
            break
        room -= size
    shown = []
    for text in texts:
        half, cut = most // 2, len(text) - most // 2 * 2
        note = f"\n[{cut} characters are left out here]\n"
        shown.append(text if len(text) <= most else text[:half] + note + text[len(text) - half :])
    return shown, share
