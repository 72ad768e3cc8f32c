"""Online prompt optimization (paper, section 4.1): after each batch, one answer of a model rewrites the notes
in the actor's prompt."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from speedrunner.methods import (
    SUBMIT_ANSWER,
    TRIES,
    ActorSpec,
    History,
    Library,
    Message,
    Method,
    Overflow,
    Policy,
    Sees,
    SleepTools,
    Task,
    TextEnv,
    ToolError,
    Trajectory,
    describe_episodes,
    headline,
    newest_batch,
    places,
    quote_description,
    render,
    trajectory_text,
)


@dataclass(kw_only=True)
class OPO(Method):
    """A method that learns prose only.

    Attributes:
        overflow: handling of a batch that does not fit the context. `skip`, as in the paper, leaves the notes
            unchanged; `fit` shows the newest episodes that fit.
        sees: what the optimizer sees of an outcome.
    """

    overflow: Overflow = "skip"
    sees: Sees = "score"

    @property
    def sleep_calls(self) -> int:
        """Return the requests of one sleep: one, or more after answers without a valid call."""
        return TRIES

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return an actor with the primitives and the notes."""
        return ActorSpec(Library(env.primitives), policy.notes)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the optimizer read the batch's episodes and rewrite the notes.

        Raises:
            ServingError: the engine failed.
        """
        batch = newest_batch(history)
        if not batch:
            tools.fell_short("no episode of the batch has a score")
            return policy
        notes = policy.notes

        def write_notes(text: str) -> str:
            """Replace the notes with `text`."""
            nonlocal notes
            if not text.strip():
                raise ToolError("the notes are empty")
            notes = text.strip()
            return "The notes are stored."

        if messages := self._messages(policy, batch, tools):
            await tools.ask("optimizer", messages, write_notes)
        else:
            tools.fell_short("no episode of the batch fits the context of the optimizer")
        return msgspec.structs.replace(policy, notes=notes)

    def _messages(self, policy: Policy, batch: list[Trajectory], tools: SleepTools) -> list[Message]:
        """Return the prompt; empty if no episode fits."""
        role = tools.model.model_config.role("optimizer")
        system = render(
            __package__,
            "opo/system",
            env=tools.env,
            submit=SUBMIT_ANSWER,
            description=quote_description(tools.env),
            episodes=describe_episodes(tools.env, tools.limits),
            string_tokens=role.string_tokens,
        )
        texts = [trajectory_text(each) for each in batch]

        def user(shown: list[int]) -> str:
            return render(
                __package__,
                "opo/user",
                notes=policy.notes,
                texts=[texts[place] for place in shown],
                left_out=[
                    headline(msgspec.to_builtins(each))
                    for place, each in enumerate(batch)
                    if place not in shown
                ],
            )

        shown = places(texts, self.overflow, tools.model, "optimizer", system, user([]))
        if not shown:
            return []
        return [Message("system", system), Message("user", user(shown))]
