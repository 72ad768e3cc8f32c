"""SpeedRunner (paper, section 3): an inducer reads the stored trajectories and edits the skill library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec

from speedrunner.agents.reading import opening, summary_lines, turns
from speedrunner.agents.texts import describe_loop, describe_skill_calls
from speedrunner.config.schema import AtLeastOne
from speedrunner.methods import (
    ActorSpec,
    History,
    Library,
    Message,
    Method,
    Policy,
    Primitive,
    Sees,
    SleepTools,
    Task,
    Termination,
    TextEnv,
    Tool,
    Toolbox,
    ToolSpec,
    Trajectory,
    describe_episodes,
    headline,
    render,
    skill_example,
    skill_rules,
    trajectory_text,
    world,
)
from speedrunner.methods.speedrunner.draft import Draft
from speedrunner.methods.speedrunner.interpreter import Interpreter

READING_SHARE = 0.5
"""Share of the model's context for trajectories if there is no code interpreter."""

SLEEPS_SHOWN = 5
"""Number of latest sleeps that the prompt summarizes."""

SOURCE_TOKENS, SOURCE_SHARE = 15_000, 0.125
"""Maximum tokens of a library's source, and maximum share of the context, to be included in the prompt; a
larger library is only listed."""


def finish(summary: str) -> str:
    """Finish this sleep. `summary` says in a few sentences what you changed and why."""
    return "The library was stored."


def inducer_tools(primitives: tuple[Primitive, ...], *, interpreter: bool) -> list[ToolSpec]:
    """Return the tools that the inducer sees, with or without a code interpreter."""
    draft = Draft(Library(primitives), 1, [])
    offered: list[Tool] = [Interpreter.execute_code.__get__(draft)] if interpreter else []
    return Toolbox([*offered, *draft.tools(all_public=False)], finish).specs


@dataclass(kw_only=True)
class SpeedRunner(Method):
    """Wake-sleep skill library learning.

    Attributes:
        inducer_calls: requests of one sleep (paper, Appendix A.1: 100).
        output_chars: maximum output of one piece of the inducer's code, in characters.
        code_wall_s: maximum seconds for one piece of the inducer's code.
        on_limit: whether the draft is adopted or discarded when calls, context or time are used up.
        prompt: the inducer's instructions; `asi_style`: abstract observed behavior (section 6.1).
        visibility: `all_public` shows the actor every skill (section 6.1).
        interpreter: `off` puts the batch's trajectories in the context instead (section 6.1).
        sees: what the inducer sees of an outcome.
    """

    inducer_calls: AtLeastOne = 100
    output_chars: AtLeastOne = 8000
    code_wall_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    on_limit: Literal["adopt", "discard"] = "adopt"
    prompt: Literal["goal_oriented", "asi_style"] = "goal_oriented"
    visibility: Literal["split", "all_public"] = "split"
    interpreter: Literal["on", "off"] = "on"
    sees: Sees = "score"

    documents: ClassVar[bool] = False
    """Whether the actor reads skills and cannot call them; the inducer is told."""

    @property
    def sleep_calls(self) -> int:
        """Return the inducer's requests."""
        return self.inducer_calls

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return the policy's library as the actor's specification."""
        return ActorSpec(Library(env.primitives).of(self._apply_visibility(policy, env)))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer edit the library. Accepted edits count even if it could not finish.

        Raises:
            ServingError: the engine failed.
            SandboxError: the inducer's code cannot be run here.
        """
        policy = self._apply_visibility(policy, tools.env)
        draft = Draft(tools.library(policy), tools.sleep, tools.edits)
        offered: list[Tool] = [*draft.tools(all_public=self.visibility == "all_public")]
        calls = tools.calls("inducer", self.inducer_calls)
        async with AsyncExitStack() as stack:
            if self.interpreter == "on":
                interpreter = Interpreter(
                    tools.sandbox,
                    await asyncio.to_thread(stack.enter_context, history.files()),  # copies may be large
                    tools.env.primitives,
                    lambda: draft.library,
                    output_chars=self.output_chars,
                    wall_s=self.code_wall_s,
                )
                offered.insert(0, (await stack.enter_async_context(interpreter)).execute_code)
            messages = self._messages(draft.library, history, tools, calls)
            termination = await tools.run_agent("inducer", messages, Toolbox(offered, finish), calls)
        if termination is not Termination.SUBMITTED and self.on_limit == "discard":
            tools.error = tools.error or f"the inducer used up its {calls} calls"
            tools.take_back(tools.error)
            return policy
        if tools.error is not None:
            tools.error += "; the edits accepted before that are kept"
        return draft.library.policy(policy)

    def _messages(self, library: Library, history: History, tools: SleepTools, calls: int) -> list[Message]:
        batch = history.batch(history.batches()[-1])
        split, interpreter = self.visibility == "split", self.interpreter == "on"
        goal = render(
            __package__, self.prompt, tools.wording, interpreter=interpreter, documents=self.documents
        )
        model_config = tools.model.model_config
        string_tokens = model_config.role("inducer").string_tokens
        system = render(
            __package__,
            "system",
            tools.wording,
            goal=goal,
            world=world(tools.env),
            episodes=describe_episodes(tools.env, tools.limits),
            rules=skill_rules(tools.env, string_tokens, documents=self.documents),
            example=skill_example(),
            documents=self.documents,
            split=split,
            interpreter=interpreter,
            memory_mb=tools.sandbox.memory_mb,
            wall_s=f"{self.code_wall_s:g}",
            output_chars=self.output_chars,
            sees=self.sees,
            earlier=history.earlier,
        )
        shown = ShownEpisodes([], [], 1.0)
        if not interpreter:
            room = int(model_config.context * READING_SHARE)
            shown = select_episodes(batch, room, tools.model.count_tokens)
            tools.shown = round(shown.share, 4)
        source = library.annotated_source()
        most = min(SOURCE_TOKENS, model_config.context * SOURCE_SHARE)
        user = render(
            __package__,
            "user",
            sleep=tools.sleep,
            batch=[_describe_episode(played) for played in batch],
            history=history.count(),
            earlier_runs=history.earlier,
            environment=history.environment,
            interpreter=interpreter,
            texts=shown.texts,
            left_out=shown.left_out,
            earlier=[
                line
                for record in history.sleeps(tools.sleep)[-SLEEPS_SHOWN:]
                for line in (*summary_lines(msgspec.to_builtins(record)), *_effect(record.sleep, history))
            ],
            library=library,
            source=source if tools.model.count_tokens(source) <= most else "",
            split=split,
            calls=calls,
            context=model_config.context,
            discards=self.on_limit == "discard",
        )
        return [Message("system", system), Message("user", user)]

    def _apply_visibility(self, policy: Policy, env: TextEnv) -> Policy:
        """Return the policy with the configured visibility; a skill that cannot be a tool stays hidden."""
        if self.visibility == "split":
            return policy
        library = Library(env.primitives).of(policy)
        skills = tuple(
            msgspec.structs.replace(skill, public=library.can_be_tool(skill.name)) for skill in policy.skills
        )
        return msgspec.structs.replace(policy, skills=skills)


def _describe_episode(played: Trajectory) -> str:
    parts = headline(msgspec.to_builtins(played)), describe_skill_calls(played.turns)
    return "; ".join(filter(None, (*parts, describe_loop(played.turns))))


def _effect(sleep: int, history: History) -> list[str]:
    """Return the line on the batches before and after a sleep; none without scored episodes in both."""
    before, after = history.means(sleep - 1), history.means(sleep)
    if before is None or after is None:
        return []
    return [
        f"  batches before and after: mean score {before[0]:.2f} and {after[0]:.2f},"
        f" LLM calls an episode {before[1]:.1f} and {after[1]:.1f}"
    ]


class ShownEpisodes(NamedTuple):
    """A batch as the prompt of an inducer without a code interpreter shows it (paper, section 6.1).

    Attributes:
        texts: episodes with all or some of their turns, oldest first.
        left_out: headlines of episodes without room for their first and last turn.
        share: tokens of `texts` as a share of those of all whole episodes.
    """

    texts: list[str]
    left_out: list[str]
    share: float


def select_episodes(
    batch: Sequence[Trajectory], room_tokens: int, count_tokens: Callable[[str], int]
) -> ShownEpisodes:
    """Fit a batch into a room: whole if possible, else with the middle of its longest episodes left out.

    Each episode gets an equal share of the room; shorter episodes leave the rest of theirs to the others.
    """
    wholes = [trajectory_text(episode) for episode in batch]
    tokens = [count_tokens(text) for text in wholes]
    rooms = dict(enumerate(tokens))
    left = room_tokens
    for position, place in enumerate(sorted(rooms, key=rooms.__getitem__)):
        rooms[place] = min(tokens[place], left // (len(batch) - position))
        left -= rooms[place]
    texts, left_out = [], []
    for place, (episode, whole) in enumerate(zip(batch, wholes, strict=True)):
        fits = tokens[place] <= rooms[place]
        text = whole if fits else _leave_out_middle(episode, rooms[place], count_tokens)
        if text:
            texts.append(text)
        else:
            left_out.append(headline(msgspec.to_builtins(episode)))
    return ShownEpisodes(texts, left_out, sum(map(count_tokens, texts)) / max(sum(tokens), 1))


def _leave_out_middle(episode: Trajectory, room_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Return an episode with as many of its first and last turns as fit; "" if one of each does not fit."""
    plain = msgspec.to_builtins(episode)
    head = f"{headline(plain, has_task=False)}\n{opening(plain)}"
    written = ["\n".join(lines) for lines in turns(plain)]

    def text(first: int, last: int) -> str:
        gap = f"[turns {first + 1} to {len(written) - last} are left out here]"
        return "\n".join([head, *written[:first], gap, *written[len(written) - last :]])

    sizes = [count_tokens(f"{turn}\n") for turn in written]
    shown, used = [0, 0], count_tokens(text(0, 0))
    while sum(shown) < len(written) - 1:
        side = sum(shown) % 2
        size = sizes[len(written) - 1 - shown[1] if side else shown[0]]
        if used + size > room_tokens:
            break
        used += size
        shown[side] += 1
    return text(*shown) if min(shown) else ""
