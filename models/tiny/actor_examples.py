"""The actor's training data: episodes that its teacher plays, as the token ids that serving produces."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from envs.babyai import TASKS, WORLD_SEEDS, BabyAI
from models.tiny.teachers.bot import WORDINGS, Goal, Seen, SkillUse, Teacher, draw_library, goals
from serving.model_config import Role, Roles
from serving.model_configs import load_model_config
from serving.tokens.formats import CHATML
from serving.tokens.grammar import dumps
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.transcript import Transcript
from speedrunner.config.compose import compose
from speedrunner.methods import (
    ActorSpec,
    CallNode,
    Executed,
    Library,
    Message,
    Task,
    ToolCall,
    ToolSpec,
    actor_view,
    plain_messages,
)

WORLDS = range(WORLD_SEEDS.stop, 100 * WORLD_SEEDS.stop)
"""World seeds of the corpus. They include no world of either split."""

CALLS = 30
"""Maximum turns of an episode, equal to the environment's limit."""

_ROLE = Role(thinking_tokens=256, string_tokens=8192)

MODEL_CONFIG = msgspec.structs.replace(load_model_config("tiny"), roles=Roles(_ROLE, _ROLE))
"""The model with room for everything that its teachers write."""


class Example(NamedTuple):
    """A training example: its token ids, and a flag for each, true if the model should write it."""

    ids: list[int]
    learnt: list[bool]


class Written:
    """Tokenizes a conversation, inputs and answers alike, to the ids that serving produces."""

    def __init__(self, tokenizer: ChatTokenizer, messages: list[Message], tools: list[ToolSpec]) -> None:
        self._tokenizer = tokenizer
        self._transcript = Transcript(MODEL_CONFIG, "actor", tokenizer, plain_messages(messages), tools)
        self._learnt = [False] * len(self._transcript.ids)

    def answer(self, thought: str, call: ToolCall, *, learnt: bool = True) -> None:
        """Append a turn of the model. With `learnt=False` only its thought is learnt, because its call is not
        the one to imitate. Raises `ValueError` if serving would parse the turn differently."""
        before = self._tokenizer.framed(f"<think>\n{thought}\n</think>\n\n")
        after = self._tokenizer.framed(write_call(call))
        read = self._transcript.answer(before + after)
        if read.call != call or read.reasoning != thought:
            raise ValueError(f"serving would read {read.call} in {write_call(call)!r}: {read.problem}")
        self._learnt += [True] * len(before) + [learnt] * len(after)

    def tell(self, text: str) -> None:
        """Append an input of the model."""
        self._transcript.tell(text)
        self._learnt += [False] * (len(self._transcript.ids) - len(self._learnt))

    def example(self) -> Example:
        """Return the whole conversation as an example."""
        return Example(self._transcript.ids, self._learnt)


NOISE = ("turn_left", "turn_right", "go_forward", "go_forward", "pick_up", "drop")
"""Calls that replace some of the teacher's calls at random."""


def write_call(call: ToolCall) -> str:
    """Return the text of a call, including the end of its turn."""
    written = f'{{"name": {dumps(call.name)}, "arguments": {dumps(call.arguments)}}}'
    return f"<tool_call>\n{written}\n</tool_call><|im_end|>"


def snapshots(tokenizer: ChatTokenizer, seed: int) -> Iterator[Example]:
    """Yield single turns without history or tools: a view with several things, a thought and a call."""
    rng = random.Random(f"snapshots {seed}")
    before, after = CHATML.user_turn
    while True:
        env = BabyAI(num_dists=rng.choice((0, 1, 2, 3, 4, 6)))
        opening = env.reset(Task(BabyAI.name, TASKS[0], rng.choice(WORLDS)))
        teacher, told = Teacher(opening.instruction), opening.observation
        for _ in range(CALLS):
            thought, call = teacher.turn(told)
            if "not in sight" not in thought:
                text = f"Your task: {opening.instruction}\n\n{told}"
                prompt = tokenizer.framed(before.lstrip(), text, f"{after}<|im_start|>assistant\n")
                answer = tokenizer.framed(f"<think>\n{thought}\n</think>\n\n{write_call(call)}")
                yield Example(prompt + answer, [False] * len(prompt) + [True] * len(answer))
            told = env.call(call.name if rng.random() < 0.8 else rng.choice(NOISE))
            if env.done:
                break


def episodes(tokenizer: ChatTokenizer, seed: int, skilled: float) -> Iterator[Example]:
    """Yield whole successful episodes.

    Args:
        skilled: probability that an actor gets a skill library; otherwise it has only primitives.
    """
    rng = random.Random(f"episodes {seed}")
    reply_chars = compose(["env=babyai"]).run.reply_chars
    env = BabyAI()
    plain = ActorSpec(Library(env.primitives))
    while True:
        spec, uses = draw_library(rng, env) if rng.random() < skilled else (plain, [])
        for _ in range(4 if spec is not plain else 1):  # creating a library takes longer than using it
            task = Task(env.name, TASKS[0], rng.choice(WORLDS))
            played = _Episode(env, spec, uses, rng, reply_chars).play(tokenizer, task)
            if played is not None:
                yield played


@dataclass
class _Episode:
    """One episode of the corpus."""

    env: BabyAI
    spec: ActorSpec
    uses: list[SkillUse]
    rng: random.Random
    reply_chars: int

    def play(self, tokenizer: ChatTokenizer, task: Task) -> Example | None:
        """Play a task and return it as an example, or `None` if the episode fails."""
        env, rng = self.env, self.rng
        noise = 0.12 if rng.random() < 0.6 else 0.0
        opening = env.reset(task)
        mission, told = opening.instruction, opening.observation
        teacher = Teacher(mission, self.uses)
        first, second = goals(mission)
        # Some episodes take the wrong thing first and have to put it down again.
        stray = Teacher(f"pick up the {second.thing}, then go to the {first.thing}")
        strays = first.thing != second.thing and not self.uses and rng.random() < 0.08
        written = Written(tokenizer, self.spec.messages(env, opening), self.spec.list_tools(env))
        for turn in range(CALLS):
            if turn:
                written.tell(told)
            thought, call = teacher.turn(told)
            strays = strays and Seen.read(told).carried is None
            made = stray.turn(told)[1] if strays else call
            if not strays and call.name in NOISE and rng.random() < noise:
                made = ToolCall(rng.choice(NOISE), {})
            written.answer(thought, made, learnt=made == call)
            executed = self._execute(made, mission)
            if env.done:
                return written.example() if env.outcome().success else None
            told = actor_view(executed, self.reply_chars)
        return None

    def _execute(self, call: ToolCall, mission: str) -> Executed:
        use = next((use for use in self.uses if use.tool.name == call.name), None)
        if use is not None:
            node, observation = self._play_skill(use, call, mission)
        else:
            observation = self.env.call(call.name)
            node = CallNode(call.name, "primitive", call.arguments, observation)
        return Executed(
            node=node,
            observation=observation,
            free_observation=None,
            outcome=self.env.outcome(),
            actions=node.actions,
            termination=None,
        )

    def _play_skill(self, use: SkillUse, call: ToolCall, mission: str) -> tuple[CallNode, str | None]:
        """Play a skill's actions and draw its reply; return its call and the last observation, if there is
        one. Most skills achieve their aim, some stop early."""
        env, rng = self.env, self.rng
        aim = Goal(use.verb, next(iter(call.arguments.values()))) if use.verb else None
        steps = 60 if rng.random() < 0.75 else rng.choice((0, 0, 1, 2, 4, 4, 5, 8))
        node = CallNode(call.name, "skill", call.arguments)
        bot = Teacher(mission)
        action, text = "turn_right", ""  # a skill starts without an observation, so it turns to get one
        for _ in range(steps + 1 if steps else 0):
            text = env.call(action)
            node.calls.append(CallNode(action, "primitive", {}, text))
            if env.done or (aim is not None and _is_reached(aim, text)):
                break
            _, made = bot.by_hand(Seen.read(text), aim) if aim else bot.turn(text)
            action = made.name
        node.actions = len(node.calls)
        said = {"what": str(aim or mission), "thing": aim.thing if aim else goals(mission)[0].thing}
        replies = WORDINGS["replies"]
        if not env.done and aim is not None and _is_reached(aim, text):
            node.result = rng.choice(replies["done"]).format(**said)
        elif rng.random() < 0.5:
            node.result = rng.choice(replies["failed"]).format(**said)
        else:
            node.error = rng.choice(replies["errors"]).format(**said)
        return node, text or None


def _is_reached(aim: Goal, text: str) -> bool:
    seen = Seen.read(text)
    if aim.verb == "pick up":
        return seen.carried == aim.thing
    return any(name == aim.thing and cell == (0, 1) for name, cell, _ in seen.things)
