"""Check that every prompt starts with the previous prompt and its answer.

Records contain the number of an answer's token ids, but not the ids. A prompt must have as many tokens as the
previous prompt, its answer and the reply together. The reply is rendered again if the model's tokenizer is
available.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

from serving.errors import ServingError
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript, open_transcript
from serving.weights import prepare
from speedrunner.agents.actor import SUBMIT_ANSWER
from speedrunner.agents.loop import plain_messages
from speedrunner.config.findings import Finding
from speedrunner.methods.method_base import Method
from speedrunner.runs.identity import model_files
from speedrunner.store.records import Message, Process, Turn
from speedrunner.store.stored_run import sleep_key
from speedrunner.verification.differences import Differences, turn_of
from speedrunner.verification.subject import Played, Subject

OTHER_ROUTE = "prompts of an engine that is sent messages, not token ids"


class Composer:
    """Renders prompts of one model again, if the records allow it."""

    def __init__(self, model_config: ModelConfig, tokenizer: ChatTokenizer) -> None:
        self._model_config = model_config
        self._tokenizer = tokenizer
        self._any = cache(lambda role: self._transcript(role, [Message("user", "")], [SUBMIT_ANSWER]))

    def first(self, role: str, messages: list[Message], tools: list[ToolSpec]) -> int:
        """Return the number of tokens of a first prompt."""
        return len(self._transcript(role, messages, tools).ids)

    def reply(self, role: str, answered: Turn, text: str) -> int:
        """Return the tokens of the reply to a turn, including the opening of the next turn."""
        return len(self._any(role).reply(text, has_call=answered.call is not None))

    def _transcript(self, role: str, messages: list[Message], tools: list[ToolSpec]) -> Transcript:
        return open_transcript(self._model_config, role, self._tokenizer, plain_messages(messages), tools)


def composer(model_config: ModelConfig, own: ModelConfig | None, process: Process | None) -> Composer | None:
    """Return the composer of a model's prompts; `None` if its tokenizer is missing here or has changed.

    Args:
        model_config: the recorded model config.
        own: the reader's config of this model, which has its location; `None` if there is none.
    """
    from huggingface_hub import try_to_load_from_cache

    if own is None:
        return None
    if own.id is not None:
        there = try_to_load_from_cache(own.id, "tokenizer_config.json", revision=own.revision)
        if not isinstance(there, str):
            return None  # nothing is downloaded
    try:
        folder = prepare(own, lambda line: None)
        files = model_files(own, lambda line: None)
        if process is not None and process.models.get(own.name, files) != files:
            return None
        return Composer(model_config, ChatTokenizer(folder, own.revision))
    except ServingError:
        return None


def check_prompts(subject: Subject) -> Finding:
    """Check the conversations of all episodes and sleeps. Raises `StorageError`."""
    return _Prompts(subject).check()


class _Prompts:
    """The prompts of a run, one conversation after another."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._setup = subject.setup
        self._composers: dict[str, Composer | None] = {}
        self._found = Differences("prompts")
        self._counts: Counter[str] = Counter()

    def check(self) -> Finding:
        """Check all conversations."""
        for played in self._subject.episodes():
            key, talks = played.trajectory.episode, dict[int, list[tuple[int, Turn]]]()
            for number, turn in enumerate(played.trajectory.turns):
                talks.setdefault(turn.conversation, []).append((number, turn))
            for talk in talks.values():
                self._conversation(key, talk[0][1].role, talk)
            if 0 in talks and played.phase != "sleep":
                self._opening(played, *talks[0][0])
        for record in self._subject.run.sleeps:
            for agent in record.agents:
                self._conversation(sleep_key(record.sleep), agent.role, list(enumerate(agent.turns)))
        counts = self._counts
        if not counts.total() and self._found.left_out:
            return Finding("prompts", "not checked", OTHER_ROUTE)
        how = f"replies composed again in {counts['exact']}, recorded usage alone in {counts['usage']}"
        first = f"{counts['first']} first prompts composed again"
        return self._found.finding(f"{counts['exact'] + counts['usage']} continued prompts ({how}); {first}")

    def _conversation(self, key: str, role: str, talk: list[tuple[int, Turn]]) -> None:
        """Check that each prompt except the first continues the previous one."""
        if self._model_config(role).api != "completions":
            self._found.left_out[OTHER_ROUTE] += len(talk)
            return
        composer = self._composer(role)
        for (_, before), (number, turn) in pairwise(talk):
            where, least = turn_of(key, number), before.usage.prompt + before.usage.completion
            self._counts["exact" if composer else "usage"] += 1
            if turn.usage.prompt < least:
                what = f"its prompt has {turn.usage.prompt} tokens, the one before and its answer {least}"
                self._found.differs(where, what)
            elif composer is not None:
                replies = sum(composer.reply(role, before, each.content) for each in turn.messages)
                # If an answer was truncated, its end of turn is added.
                ends = range(1 if before.call is not None else 2)
                if turn.usage.prompt - least - replies not in ends:
                    what = f"its prompt has {turn.usage.prompt} tokens, and should have {least + replies}"
                    self._found.differs(where, what)

    def _opening(self, played: Played, number: int, turn: Turn) -> None:
        """Check that an actor's first prompt has the recorded digest and length."""
        episode, setup = played.trajectory, self._setup
        spec, where = self._subject.spec(played), turn_of(played.trajectory.episode, number)
        if turn.role != spec.role:
            return
        if spec.prompt_hash(setup.env, turn.messages) != episode.prompt_hash:
            if type(setup.method).play is Method.play:  # other methods may ask for something else
                self._found.differs(where, "the first prompt does not have its recorded digest")
            return
        composer = self._composer(spec.role) if self._model_config(spec.role).api == "completions" else None
        if composer is not None:
            self._counts["first"] += 1
            tokens = composer.first(spec.role, turn.messages, spec.list_tools(setup.env))
            self._found.expect(where, "tokens of the first prompt", turn.usage.prompt, tokens)

    def _model_config(self, role: str) -> ModelConfig:
        return self._setup.model_config if role == "actor" else self._setup.inducer_model_config

    def _composer(self, role: str) -> Composer | None:
        model_config = self._model_config(role)
        if model_config.name not in self._composers:
            own = self._subject.model_configs.get(model_config.name)
            self._composers[model_config.name] = composer(model_config, own, self._subject.process)
        return self._composers[model_config.name]
