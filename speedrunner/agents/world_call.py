"""One call in the world, within the limits of an episode."""

from __future__ import annotations

from serving.tokens.tools import ToolCall
from speedrunner.agents.actor import SUBMIT_ANSWER, actor_view
from speedrunner.agents.loop import ToolReply
from speedrunner.config.schema import Config
from speedrunner.store.records import CallNode, Termination
from speedrunner.workers.env_worker import EnvWorker
from speedrunner.workers.worker_messages import Executed


async def execute_call(
    worker: EnvWorker, call: ToolCall, config: Config, remaining_s: float
) -> tuple[ToolReply, Executed | None]:
    """Run a primitive, a public skill or `submit_answer`. The reply contains any error of the call.

    Args:
        worker: plays the episode.
        config: sets the limits of one call and of the reply's length.
        remaining_s: seconds that are left of the episode.

    Returns:
        The reply, and the worker's report; `None` for `submit_answer`, which the worker does not know.

    Raises:
        WorkerError: the environment broke.
    """
    if call.name == SUBMIT_ANSWER.name:
        node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
        return ToolReply("The answer is submitted.", node, Termination.SUBMITTED), None
    left_s = max(remaining_s, 0.001)
    limit_s = min(config.sandbox.call_wall_s or left_s, left_s)
    executed = await worker.execute(call, limit_s, config.sandbox.call_actions)
    text = actor_view(executed, config.run.reply_chars)
    return ToolReply(text, executed.node, executed.termination), executed
