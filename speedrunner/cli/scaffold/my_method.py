"""A method whose sleeps write skills."""

from __future__ import annotations

from speedrunner.methods import (
    Edit,
    History,
    InvalidSkill,
    Message,
    Method,
    Policy,
    SleepTools,
    Toolbox,
    ToolError,
    function_names,
    newest_batch,
    quote_description,
    trajectory_text,
)

TASK = (
    "You improve an agent, the actor, that plays episodes of a text environment. {description}\n\nRead the"
    " new episodes, write skills that the actor can call, and finish."
)


class MyMethod(Method):
    """After each batch of episodes, one agent reads them. The docstring of `Method` is the contract.

    It keeps nothing in `self` but its options: all that is learnt is in the policy.

    Args:
        llm_calls: requests of one sleep, at most.
    """

    # Options are keyword-only and have defaults: `method.llm_calls=20` sets this one.
    def __init__(self, *, llm_calls: int = 10) -> None:
        self._llm_calls = llm_calls

    # `initial` and `agent` are optional. By default the first policy is empty, and the actor gets the skills
    # and notes of the current one.

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Turn the newest batch into the next policy."""
        # `tools.library` checks each edit as the actor's model needs it.
        library = tools.library(policy)

        # The agent's tools are typed functions; it is shown their names, types and docstrings.
        def write_skill(source: str) -> str:
            """Add a skill: a typed, documented Python function that can call the environment's primitives."""
            nonlocal library
            name = ", ".join(function_names(source))
            try:
                edited = library.write(source, public=True, sleep=tools.sleep)
            except InvalidSkill as error:
                # What was asked for is recorded, refused or not; a `ToolError` tells the agent its mistake.
                tools.edits.append(Edit("write", name, str(error), source=source, public=True))
                raise ToolError(str(error)) from error
            if edited != library:
                tools.edits.append(Edit("write", name, source=source, public=True))
            library = edited
            return f"{name} was added to the library."

        def finish() -> str:
            """Finish this sleep."""
            return "The skills were stored."

        messages = [
            Message("system", TASK.format(description=quote_description(tools.env))),
            Message("user", "\n\n".join(trajectory_text(played) for played in newest_batch(history))),
        ]
        # A conversation, recorded and paid as the sleep's, until `finish` or the last call.
        await tools.run_agent("inducer", messages, Toolbox([write_skill], finish), self._llm_calls)
        if tools.error is not None:  # what the agent read did not fit into its context
            tools.take_back(tools.error)  # the accepted edits, which this policy does not have
            return policy
        return library.policy(policy)
