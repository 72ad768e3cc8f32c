"""Plays conversations on an engine: synthetic ones, and recorded ones with forced answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.apis.completions import TokenConversation
from serving.conversation import Completion
from serving.errors import ContextOverflow
from serving.model import Messages, Model
from serving.tokens.grammar import constant, sequence, structural_tag
from serving.tokens.tools import ToolSpec
from speedrunner.store.records import Turn


@dataclass(frozen=True)
class Script:
    """A conversation to play.

    Attributes:
        messages, tools: its opening.
        replies: what follows each answer except the last: there is one request more than replies.
        answers: recorded answers to force, one for each request; none: the model answers freely.
        labels: labels of its rows in the ledger.
    """

    messages: Messages
    tools: list[ToolSpec]
    replies: Sequence[str]
    answers: Sequence[Turn] = ()
    labels: dict[str, str] = field(default_factory=dict)


class Forcing(NamedTuple):
    """How recorded answers are forced.

    Attributes:
        salt: returns each request's `cache_salt`; requests with the same one share the prefix cache.
        cut: characters after which the grammar of an answer is split in two. The engine keeps compiled
            grammars; with another split, the same answer needs another grammar.
    """

    salt: Callable[[], str]
    cut: int = 0


class Played(NamedTuple):
    """One request's answer.

    Attributes:
        recorded: the recorded answer that was forced, if any.
        prompt: ids of the prompt, if a watcher is called with it; otherwise empty.
        replica: the replica that answered, if there are several.
    """

    recorded: Turn | None
    answer: Completion
    prompt: list[int]
    replica: int | None


async def play_script(
    model: Model,
    script: Script,
    forcing: Forcing | None = None,
    check: Callable[[int], None] = lambda tokens: None,
    watch: Callable[[int, Played], Awaitable[None]] | None = None,
) -> list[Played]:
    """Play a conversation until its end, or until a recorded answer does not fit the context.

    Args:
        check: called with the tokens of the first prompt before it is sent; an exception ends the
            conversation.
        watch: called with the number and the data of each answer before the next request.

    Raises `ServingError`; `ContextOverflow` only if the model answers freely.
    """
    talk = model.converse("actor", script.messages, script.tools, script.labels)
    assert isinstance(talk, TokenConversation)
    played: list[Played] = []
    try:
        check(len(talk.transcript.ids))
        for number in range(len(script.replies) + 1):
            if number:
                talk.tell(script.replies[number - 1])
            recorded = script.answers[number] if script.answers else None
            if recorded is not None and forcing is not None:
                if model.model_config.context - len(talk.transcript.ids) < recorded.usage.completion:
                    break
                _force(talk, recorded, forcing)
                await talk.ready()
            prompt = list(talk.transcript.ids) if watch else []
            try:
                answer = await talk.ask()
            except ContextOverflow:
                if recorded is None:
                    raise
                break
            played.append(Played(recorded, answer, prompt, talk.replica.address))
            if watch is not None:
                await watch(number, played[-1])
    finally:
        talk.close()
    return played


def _force(talk: TokenConversation, turn: Turn, forcing: Forcing) -> None:
    """Allow only the recorded answer."""
    written = talk.transcript.written(turn.reasoning, turn.text)
    parts = (written[: forcing.cut], written[forcing.cut :])
    grammar = sequence(*(constant(part) for part in parts if part))
    talk.transcript.grammar = grammar
    talk.options |= {
        "structured_outputs": {"structural_tag": structural_tag(grammar)},
        "temperature": 0.0,
        "cache_salt": forcing.salt(),
    }
