"""SpeedRunner (paper, section 3): an inducer reads the stored trajectories and edits the skill library."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from envs import Task, TextEnv
from speedrunner.actor import ActorSpec
from speedrunner.history import History
from speedrunner.library import Library
from speedrunner.methods.base import SleepTools
from speedrunner.prompts import render
from speedrunner.records import Edit, Ending, Message, Policy, Trajectory
from speedrunner.skill_source import ALLOWED_MODULES, InvalidSkill
from speedrunner.toolbox import Toolbox, ToolError
from speedrunner.trajectory_text import headline, trajectory_lines


class SpeedRunner:
    """Wake-sleep skill library learning.

    Args:
        inducer_calls: requests of one sleep (paper, Appendix A.1: 100).
        output_chars: longest result of one of the inducer's tools, in characters.
    """

    trains = True

    def __init__(self, *, inducer_calls: int = 100, output_chars: int = 8000) -> None:
        self._calls = inducer_calls
        self._output_chars = output_chars

    def initial(self) -> Policy:
        """An empty library."""
        return Policy(version=0)

    def agent(self, policy: Policy, task: Task, env: TextEnv) -> ActorSpec:
        """The policy's library."""
        return ActorSpec(Library(env.primitives, policy.skills, policy.preamble))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the inducer edit the library. When its context overflows, nothing changes."""
        calls = tools.calls("inducer", self._calls)
        trajectories = history.trajectories()
        session = InducerSession(tools, tools.library(policy), trajectories, self._output_chars)
        batch = history.batch(history.batches()[-1])
        messages = [
            Message(
                "system",
                render(
                    "inducer_system",
                    description=tools.env.description,
                    primitives=tools.env.primitives,
                    modules=sorted(ALLOWED_MODULES),
                ),
            ),
            Message(
                "user",
                render(
                    "inducer_user",
                    sleep=tools.sleep,
                    batch=[headline(trajectory) for trajectory in batch],
                    history=len(trajectories),
                    skills=policy.skills,
                    calls=calls,
                ),
            ),
        ]
        toolbox = Toolbox(session.tools, session.finish, calls)
        ending = await tools.run_agent("inducer", messages, toolbox, calls)
        if ending is Ending.CONTEXT_OVERFLOW:
            return policy
        library = session.library
        return msgspec.structs.replace(policy, skills=library.skills, preamble=library.preamble)


class InducerSession:
    """The inducer's tools over one draft of the library. Their docstrings are what it is told."""

    def __init__(
        self, sleep: SleepTools, library: Library, trajectories: list[Trajectory], output_chars: int
    ) -> None:
        self.library = library
        self._sleep = sleep
        self._trajectories = {trajectory.episode: trajectory for trajectory in trajectories}
        self._output_chars = output_chars
        self.tools: list[Callable[..., str]] = [
            self.list_trajectories,
            self.read_trajectory,
            self.show_skill,
            self.write_skill,
            self.delete_skill,
        ]

    def list_trajectories(self, first: int = 0) -> str:
        """List all recorded episodes, oldest first, one line each, from number `first` on."""
        lines = [headline(trajectory) for trajectory in self._trajectories.values()]
        return self._cut("\n".join(lines[max(first, 0) :]) or "There are no more.", "go on with `first`")

    def read_trajectory(self, episode: str, from_line: int = 0) -> str:
        """Read an episode: its task, then each call of the actor with every call that it made in turn, their
        results and errors; from line `from_line` on."""
        if episode not in self._trajectories:
            raise ToolError(f"there is no episode {episode!r}; list_trajectories names them")
        lines = "\n".join(trajectory_lines(self._trajectories[episode])).splitlines()
        return self._cut("\n".join(lines[max(from_line, 0) :]), f"of {len(lines)} lines; use `from_line`")

    def show_skill(self, name: str) -> str:
        """Show a skill's source and which skills call it."""
        try:
            return self._cut(self.library.show(name), "the source is longer")
        except InvalidSkill as error:
            raise ToolError(str(error)) from error

    def write_skill(self, source: str, public: bool) -> str:
        """Add a skill, or replace the one of the same name. `source` is one Python function with annotations
        and a docstring, imports before it. `public` tells whether the actor sees it."""
        try:
            edited = self.library.write(source, public=public, sleep=self._sleep.sleep)
        except InvalidSkill as error:
            self._sleep.edits.append(Edit("write", "", str(error)))
            raise ToolError(str(error)) from error
        before = {skill.name: skill for skill in self.library.skills}
        changed = [skill.name for skill in edited.skills if before.get(skill.name) != skill]
        self.library = edited
        if not changed:
            return "The library holds exactly this skill already."
        self._sleep.edits.append(Edit("write", changed[0]))
        return f"{changed[0]} is written. The library has {len(edited.skills)} skills."

    def delete_skill(self, name: str) -> str:
        """Delete a skill that no other skill calls."""
        try:
            self.library = self.library.delete(name)
        except InvalidSkill as error:
            self._sleep.edits.append(Edit("delete", name, str(error)))
            raise ToolError(str(error)) from error
        self._sleep.edits.append(Edit("delete", name))
        return f"{name} is deleted. The library has {len(self.library.skills)} skills."

    def finish(self, summary: str) -> str:
        """End your work. `summary` says in a few sentences what you changed and why."""
        return "The library is stored."

    def _cut(self, text: str, hint: str) -> str:
        if len(text) <= self._output_chars:
            return text
        shown = text[: self._output_chars]
        return f"{shown}\n[cut after {len(shown)} of {len(text)} characters; {hint}]"
