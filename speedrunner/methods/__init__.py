"""The public interface for methods, in one import. `Method` is the contract.

`speedrunner init method NAME` creates a working method with a test. The bundled methods are in this package,
with their names in `method_registry`.
"""

from envs import Outcome, Primitive, Task, TextEnv
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.agents.actor import SUBMIT_ANSWER, ActorSpec, actor_view
from speedrunner.agents.episode import EpisodeContext
from speedrunner.agents.loop import Tool, Toolbox, ToolError, ToolReply, plain_messages
from speedrunner.agents.reading import headline
from speedrunner.agents.rendering import render
from speedrunner.agents.texts import trajectory_text
from speedrunner.library.definition import function_names
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.methods.method_base import (
    TRIES,
    Method,
    SleepTools,
    UnfitEnvironment,
    newest_batch,
)
from speedrunner.methods.prompt_parts import quote_description, shared_parts
from speedrunner.store.history import History, Sees
from speedrunner.store.records import CallNode, Edit, Message, Policy, Skill, Termination, Trajectory
from speedrunner.workers.worker_messages import Executed
