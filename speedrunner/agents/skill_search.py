"""Tools on demand: the actor searches its library and calls what it finds (`library.shown=search`)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from serving.tokens.tools import ToolCall
from speedrunner.agents.loop import Execute, Toolbox, ToolError, ToolReply
from speedrunner.library.library import Library
from speedrunner.library.rules import suggestion

FOUND = 5
"""Maximum number of skills in the reply to a search."""

INSTRUCTIONS = (
    "You also have skills: functions that run several actions for you and report the result. Find them with"
    " search_skills and run them with call_skill. Each of their actions counts. Prefer a skill that fits over"
    " many single actions. If a skill fails, read its error and continue with single actions."
)
"""What the system prompt of such an actor says about skills."""


class SkillSearch(Toolbox):
    """Two tools instead of one for each public skill, so that the actor's tools stay few.

    The reply to `call_skill` is that to the skill's own call, also in the record.

    Args:
        library: the skills.
        run: runs the call of a skill in the world; `None` if the tools are only listed.
    """

    def __init__(self, library: Library, run: Execute | None = None) -> None:
        self._library = library
        self._run = run
        super().__init__([self.search_skills, self.call_skill])

    async def execute(self, call: ToolCall, string_tokens: int) -> ToolReply:
        """Run one call; see `Toolbox.execute`."""
        reply = await super().execute(call, string_tokens)
        return replace(reply, executed=reply.executed.calls[0]) if reply.executed.calls else reply

    def search_skills(self, query: str) -> str:
        """Find skills for what you want to do, described in a few words. Returns the signatures and
        descriptions of those that fit best, the best first. Nothing happens in the world."""
        return "\n\n".join(map(self._library.entry, self._library.rank(query, FOUND)))

    async def call_skill(self, name: str, arguments: str = "{}") -> ToolReply:
        """Run a skill by its name. `arguments` is the text of a JSON object with the skill's arguments by
        name, such as {"steps": 3}."""
        public = {skill.name for skill in self._library.public}
        if name not in public:
            raise ToolError(f"there is no skill {name}{suggestion(name, public)}")
        try:
            given = msgspec.json.decode(arguments, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ToolError(f"arguments must be the text of a JSON object, such as {{}}: {error}") from error
        if problem := self._library.tool(name).problem_with(given):
            raise ToolError(f"{name}: {problem}")
        assert self._run is not None
        return await self._run(ToolCall(name, given))
