"""Methods that ask for all that the contract offers, for tests of what carries them out."""

from __future__ import annotations

import asyncio

import msgspec

from speedrunner.methods import (
    ActorSpec,
    EpisodeContext,
    History,
    InvalidSkill,
    Library,
    Message,
    Method,
    Policy,
    SleepTools,
    Task,
    Termination,
    TextEnv,
    Toolbox,
    ToolCall,
    ToolError,
    ToolReply,
)
from speedrunner.methods.react import ReAct


class Workshop:
    """One episode of `Programming`: what its roles may call, and what came of it."""

    def __init__(self, library: Library, context: EpisodeContext | None = None) -> None:
        self.library = library
        self.context = context
        self.actor = Toolbox([self.program, self.rerun], self.give_up)

    async def program(self, source: str) -> ToolReply:
        """Write a program without parameters, and run it."""
        assert self.context is not None
        try:
            tried = self.library.write(source, public=True, sleep=0)
        except InvalidSkill as error:
            raise ToolError(str(error)) from error
        names = {each.name for each in tried.skills} - {each.name for each in self.library.skills}
        if len(names) != 1:
            raise ToolError("that is no new program")
        (name,) = names
        try:
            await self.context.load(tried)
        except InvalidSkill as error:
            raise ToolError(str(error)) from error
        reply = await self.rerun(name)
        self.context.method_state.setdefault("accepted", [])
        if reply.termination is None and await self._good(reply.text):
            self.context.method_state["accepted"].append(source)
            self.library = tried
        else:
            await self.context.load(self.library)
        return reply

    async def rerun(self, name: str) -> ToolReply:
        """Run a program again."""
        assert self.context is not None
        return await self.context.execute(ToolCall(name, {}))

    def give_up(self) -> str:
        """End the episode."""
        return "It is over."

    async def _good(self, seen: str) -> bool:
        assert self.context is not None
        verdicts = []

        def judge(success: bool) -> str:
            """Say whether the program did what it should."""
            verdicts.append(success)
            return "Noted."

        await self.context.run_agent("critic", [Message("user", seen)], Toolbox([], judge), 2)
        return verdicts == [True]


class Programming(Method):
    """A curriculum names an aim, the actor pursues it by programs that it writes, a critic judges them.

    Accepted programs can be called in the rest of the episode, and join the library in the sleep.
    """

    def initial(self) -> Policy:
        """No programs, no aims."""
        return Policy(version=0, method={"aims": []})

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """The aims so far as notes."""
        notes = "".join(f"An earlier aim: {aim}\n" for aim in policy.method["aims"])
        library = Library(env.primitives).of(policy)
        return ActorSpec(library, notes, tuple(Workshop(library).actor.specs) if training else None)

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        """Aim and program in training; what is held out is played by the ordinary actor."""
        if not context.training:
            return await context.act(spec)

        def propose(aim: str) -> str:
            """Name the next aim."""
            context.method_state["aim"] = aim
            return "Noted."

        termination = await context.run_agent(
            "curriculum", [Message("user", "What next?")], Toolbox([], propose), 2
        )
        if termination is not Termination.SUBMITTED:
            return termination
        return await context.act(spec, Workshop(context.library(policy), context).actor)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Append the batch's programs."""
        library, aims = tools.library(policy), list(policy.method["aims"])
        for played in history.batch(history.batches()[-1]):
            aims += [played.method_state["aim"]] if "aim" in played.method_state else []
            for source in played.method_state.get("accepted", []):
                library = library.write(source, public=True, sleep=tools.sleep)
        return msgspec.structs.replace(library.policy(policy), method={"aims": aims})


class Replaying(Method):
    """Plays each task of the batch again, and notes what came of it."""

    replays = True

    def initial(self) -> Policy:
        """No notes."""
        return Policy(version=0)

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """The notes."""
        return ActorSpec(Library(env.primitives), policy.notes)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Play again."""
        tasks = [played.task for played in history.batch(history.batches()[-1])]
        again = await asyncio.gather(
            *(tools.play_task(task, self.agent(policy, task, tools.env)) for task in tasks)
        )
        lines = (f"Task {task.index}: {each.termination}.\n" for task, each in zip(tasks, again, strict=True))
        return msgspec.structs.replace(policy, notes=policy.notes + "".join(lines))


class Cheating(Replaying):
    """Asks for a world that it has not trained on."""

    def __init__(self, *, index: int = 0) -> None:
        self._index = index

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Play it."""
        task = Task("tests.toy_env:Corridor", "default", self._index)
        await tools.play_task(task, self.agent(policy, task, tools.env))
        return policy


class Advised(ReAct):
    """A critic speaks before the actor plays, held out or not."""

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        """Ask it once."""

        def advise(text: str) -> str:
            """Say what to do."""
            return "Noted."

        await context.run_agent("critic", [Message("user", "What now?")], Toolbox([], advise), 1)
        return await context.act(spec)


class Forgetful(ReAct):
    """Forgets to return what one of its methods should."""

    def __init__(self, *, call: str = "sleep") -> None:
        super().__init__(train=True)
        self._call = call

    def initial(self) -> Policy:
        return super().initial() if self._call != "initial" else None  # type: ignore[return-value]

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        return super().agent(policy, task, env) if self._call != "agent" else None  # type: ignore[return-value]

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        termination = await super().play(policy, spec, context)
        return termination if self._call != "play" else None  # type: ignore[return-value]

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        return policy if self._call != "sleep" else None  # type: ignore[return-value]
