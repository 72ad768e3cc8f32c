"""Plays the recorded episodes of a run again, with the recorded answers forced by grammars."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from serving.apis.completions import TokenConversation
from serving.conversation import Completion
from serving.errors import ContextOverflow
from serving.model import Messages, Model
from serving.tokens.grammar import constant, sequence, structural_tag
from serving.tokens.tools import ToolSpec
from speedrunner.agents.loop import plain_messages
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

Watch = Callable[[int, TokenConversation, list[int], Completion], Awaitable[None]]
"""Called with the number of an answer, its conversation, the ids of its prompt, and the answer."""


@dataclass(frozen=True)
class RecordedRun:
    """A run to play again, with this many episodes at the same time."""

    data: RunData
    setup: Setup
    in_flight: int

    @property
    def method(self) -> str:
        """The name by which results are grouped."""
        return f"{self.setup.config.method.name} on {self.setup.config.env.name}"

    def episodes(self) -> dict[int, list[Trajectory]]:
        """Return its finished episodes by policy version in the order of their starts, with the actor's
        turns only.

        Raises:
            RunDirectoryError: there is none.
            StorageError: the run cannot be read.
        """
        found: dict[int, list[Trajectory]] = {}
        played = [*self.data.trajectories(), *self.data.evaluations()]
        for each in sorted(played, key=lambda each: (each.policy, each.started)):
            if turns := [turn for turn in each.turns if (turn.role, turn.conversation) == ("actor", 0)]:
                found.setdefault(each.policy, []).append(replace(each, turns=turns))
        if not found:
            raise RunDirectoryError(f"{self.data.path} has no finished episode to replay yet")
        return found

    def all_episodes(self) -> list[Trajectory]:
        """Return the episodes of all policies. Raises as `episodes`."""
        return [each for played in self.episodes().values() for each in played]

    def opening(self, episode: Trajectory) -> tuple[Messages, list[ToolSpec]]:
        """Return an episode's first messages and its tools."""
        setup = self.setup
        policy = self.data.policies.load(episode.policy)
        tools = setup.method.agent(policy, episode.task, setup.env).list_tools(setup.env)
        return plain_messages(episode.turns[0].messages), tools

    def _converse(self, model: Model, episode: Trajectory) -> TokenConversation:
        """Open an episode's conversation. Raises `RunDirectoryError` unless its first prompt is as long as
        recorded."""
        messages, tools = self.opening(episode)
        labels = {"role": "replay", "episode": episode.episode}
        talk = model.converse("actor", messages, tools, labels)
        assert isinstance(talk, TokenConversation)
        recorded, tokens = episode.turns[0].usage.prompt, len(talk.transcript.ids)
        if recorded != tokens:
            talk.close()
            raise RunDirectoryError(
                f"{self.data.path}: the first prompt of {episode.episode} had {recorded} tokens when it"
                f" was played, and {tokens} now: its templates, environment, method or model have"
                " changed"
            )
        return talk

    async def play(
        self,
        model: Model,
        episode: Trajectory,
        salt: Callable[[], str],
        cut: int = 0,
        watch: Watch | None = None,
    ) -> list[tuple[Turn, Completion]]:
        """Play an episode until its end, or until a recorded answer does not fit the context.

        Args:
            salt: returns each request's `cache_salt`; requests with the same one share the prefix cache.
            cut: characters after which the grammar of an answer is split in two. The engine keeps compiled
                grammars; with another split, the same answer needs another grammar.

        Returns the recorded turns with their answers.

        Raises:
            RunDirectoryError: the first prompt has another length than recorded.
            ServingError: the engine failed.
        """
        played: list[tuple[Turn, Completion]] = []
        talk = self._converse(model, episode)
        try:
            for number, turn in enumerate(episode.turns):
                if number:
                    talk.tell(turn.messages[0].content)
                prompt = list(talk.transcript.ids)
                if model.model_config.context - len(prompt) < turn.usage.completion:
                    break
                _force(talk, turn, salt(), cut)
                await talk.ready()
                try:
                    answer = await talk.ask()
                except ContextOverflow:
                    break
                played.append((turn, answer))
                if watch is not None:
                    await watch(number, talk, prompt, answer)
        finally:
            talk.close()
        return played


def _force(talk: TokenConversation, turn: Turn, salt: str, cut: int) -> None:
    """Allow only the recorded answer."""
    written = talk.transcript.written(turn.reasoning, turn.text)
    grammar = sequence(*(constant(part) for part in (written[:cut], written[cut:]) if part))
    talk.transcript.grammar = grammar
    talk.options |= {
        "structured_outputs": {"structural_tag": structural_tag(grammar)},
        "temperature": 0.0,
        "cache_salt": salt,
    }
