"""The episodes of one OpenEnv client: the messages of its WebSocket, without the network.

Speaks the protocol of openenv-core 0.3.0: `reset`, `step`, `state` and `close`. A step is a typed call
(`{"message": "walk(steps=2)"}`), or one of the protocol's actions for tools.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec.structs import replace

import envs
from envs import EnvironmentFault, Task
from speedrunner.agents.typed_call import FORMS, describe_tools
from speedrunner.config.named import choose_task
from speedrunner.config.schema import TaskConfig, TaskIndex
from speedrunner.skill_server.game import Game
from speedrunner.skill_server.player import Player, Reply
from speedrunner.store.records import Termination

Json = dict[str, Any]


class ResetData(msgspec.Struct):
    """The data of a reset. Other fields are ignored, as the protocol wants.

    Attributes:
        seed: number of the task among those of its split with the name, modulo their number.
        split: the split that has the seed's task.
        task: name of the task.
        index: its world seed or variation, instead of a seed.
        episode_id: the client's name for the episode.
    """

    seed: TaskIndex | None = None
    split: Literal["train", "test"] = "train"
    task: str | None = None
    index: TaskIndex | None = None
    episode_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None


class Reset(msgspec.Struct, tag="reset"):
    """Starts an episode."""

    data: ResetData = msgspec.field(default_factory=ResetData)


class Step(msgspec.Struct, tag="step"):
    """Acts. `data` is an action."""

    data: Json


class State(msgspec.Struct, tag="state"):
    """Asks for the state of the episode."""


class Close(msgspec.Struct, tag="close"):
    """Ends the session."""


class TextAction(msgspec.Struct, forbid_unknown_fields=True):
    """A typed call, in a form that `read_call` reads."""

    message: str
    metadata: Json = {}


class CallTool(msgspec.Struct, tag="call_tool", forbid_unknown_fields=True):
    """Calls a tool."""

    tool_name: str
    arguments: Json = {}
    metadata: Json = {}


class ListTools(msgspec.Struct, tag="list_tools", forbid_unknown_fields=True):
    """Asks for the tools. The world does not change."""

    metadata: Json = {}


class Refused(Exception):
    """The answer is an error. `code` is one of the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OpenEnvSession:
    """Answers the messages of one client, one after another.

    Args:
        player: plays the client's episodes.
    """

    def __init__(self, game: Game, player: Player) -> None:
        self._game = game
        self._player = player
        self._task: Task | None = None
        """The task of the running episode."""
        self._state: Json = {"episode_id": None, "step_count": 0}
        self._reward = 0.0
        """The sum of the rewards, added as a client adds them."""

    async def answer(self, text: str) -> Json | None:
        """Return the answer to a message; `None` if the client ends the session."""
        try:
            match _read(text):
                case Reset(data):
                    return {"type": "observation", "data": await self._reset(data)}
                case Step(data):
                    return {"type": "observation", "data": await self._step(_action(data))}
                case State():
                    return {"type": "state", "data": dict(self._state)}
                case Close():
                    return None
        except Refused as refused:
            return {"type": "error", "data": {"message": str(refused), "code": refused.code}}

    async def _reset(self, data: ResetData) -> Json:
        task = choose_world(self._game, data)
        self._task = None
        reply = await self._player.start({"task": task.name, "index": task.index})
        if reply.status is None:
            raise Refused("EXECUTION_ERROR", reply.text)
        self._task, self._reward = task, 0.0
        self._state = {"episode_id": data.episode_id or uuid4().hex, "step_count": 0}
        return self._observation(reply, {"instructions": self._instructions}) | {"reward": None}

    async def _step(self, action: TextAction | CallTool | ListTools) -> Json:
        if isinstance(action, ListTools):
            tools = [
                {"name": each.name, "description": each.doc, "input_schema": each.parameters}
                for each in self._game.tools.values()
            ]
            return {"observation": {"tools": tools}, "reward": None, "done": False}
        if self._task is None:
            raise Refused("EXECUTION_ERROR", "no episode is running: send a reset first")
        if isinstance(action, TextAction):
            return self._observation(await self._player.call_typed(action.message), {})
        reply = await self._player.call(action.tool_name, action.arguments)
        error = {"error_type": "execution_error", "message": reply.text} if reply.is_error else None
        result = None if reply.is_error else reply.text
        return self._observation(reply, {"tool_name": action.tool_name, "result": result, "error": error})

    @property
    def _instructions(self) -> str:
        """Return the rules and the primitives, for a client's prompt."""
        env = self._game.env
        return "\n".join([env.description, "", f"An action is {FORMS}:", *describe_tools(env)])

    def _observation(self, reply: Reply, more: Json) -> Json:
        """Return the data of an observation: the reply with what the score has risen since the last one.

        Raises `Refused` if the environment broke, so that no client takes the episode for a failed one.
        """
        status = reply.status
        assert status is not None
        self._state["step_count"] = status["calls"]
        done = status["termination"] is not None
        if done:
            self._task = None
        if status["termination"] == Termination.ENVIRONMENT_ERROR:
            raise Refused("EXECUTION_ERROR", reply.text)
        reward = status["score"] - self._reward
        self._reward += reward
        observation = {"text": reply.text, "is_error": reply.is_error, "episode": status, **more}
        return {"observation": observation, "reward": reward, "done": done}


def choose_world(game: Game, data: ResetData) -> Task:
    """Return the task of a reset. Without an index and a seed, it is the first training task of its name."""
    config, name = game.config, data.task or game.config.task.name
    if data.index is not None or data.seed is None:
        index = config.task.index if data.index is None and data.task is None else data.index
        return choose_task(replace(config, task=TaskConfig(name, index)))
    try:
        split = envs.splits(config.env.name, **config.env.options)
    except EnvironmentFault:
        known = []
    else:
        known = [task for task in getattr(split, data.split) if name in (None, task.name)]
    return known[data.seed % len(known)] if known else Task(config.env.name, name or "", data.seed)


def _read(text: str) -> Reset | Step | State | Close:
    """Return a message. Raises `Refused`."""
    try:
        return msgspec.json.decode(text, type=Reset | Step | State | Close)
    except msgspec.ValidationError as error:
        code = "UNKNOWN_TYPE" if "$.type" in str(error) else "VALIDATION_ERROR"
        raise Refused(code, str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused("INVALID_JSON", str(error)) from None


def _action(data: Json) -> TextAction | CallTool | ListTools:
    """Return an action. Raises `Refused`."""
    kind: Any = CallTool | ListTools if "type" in data else TextAction
    try:
        found: TextAction | CallTool | ListTools = msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise Refused("VALIDATION_ERROR", f"invalid action: {error}") from None
    return found
