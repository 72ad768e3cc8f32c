"""The token streams of a recorded run: first prompts, what the model wrote, what it was told.

The records hold texts. First prompts are rendered from them again, with the tools of the policy that played,
and every later prompt grows from the answers as it did then. What the agents of a sleep wrote is not here:
their tools stand in no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.cards import ModelCard
from serving.tokens.formats import FORMATS
from serving.tokens.grammar import constant, sequence, structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript
from serving.usage import Usage
from speedrunner.agents.actor import SUBMIT_ANSWER
from speedrunner.runs.setup import Setup
from speedrunner.store.data import RunData
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.rundir import RunDirectoryError

THINK_BEGIN, THINK_END = "<think>\n", "\n</think>\n\n"
"""The frame of a thinking region, as `serving.tokens.transcript` takes it off."""


@dataclass(frozen=True)
class Answer:
    """One answer as it was recorded.

    Attributes:
        written: all that the model wrote, without the end of its turn.
        reply: what it was told then; `None` after the last answer.
        usage: as the engine reported it.
        complete: whether it was a whole tool call, so that its tokens are those of `written` and the end.
    """

    written: str
    reply: str | None
    usage: Usage
    complete: bool

    def tag(self, cut: int) -> str:
        """The structural tag of a request whose answer can only be this one.

        Args:
            cut: characters after which its text is cut into two constants. The engine keeps the grammars that
                it compiled: with another cut, the same answer needs a grammar of its own.
        """
        parts = [part for part in (self.written[:cut], self.written[cut:]) if part]
        return structural_tag(sequence(*map(constant, parts)))

    @property
    def most_tokens(self) -> int:
        """The most tokens that it takes, whatever the tokenizer, the end of the turn included."""
        return constant(self.written).tokens + 1


@dataclass(frozen=True)
class Stream:
    """One recorded episode.

    Attributes:
        messages: its first ones.
        tools: what its actor could call.
    """

    episode: str
    messages: list[dict[str, str]]
    tools: list[ToolSpec]
    answers: list[Answer]


@dataclass(frozen=True)
class Block:
    """Episodes of one policy version: nothing but the sleep before it had to be over when they began.

    Attributes:
        streams: in the order in which they began.
    """

    policy: int
    streams: list[Stream]


@dataclass(frozen=True)
class Recording:
    """What of a run can be played again.

    Attributes:
        left_out: requests of its ledger that cannot: those of sleeps, probes and attempts given up.
    """

    blocks: list[Block]
    left_out: int


class Renderer:
    """Renders a card's first prompts as its actor gets them. Raises `InvalidCard`."""

    def __init__(self, card: ModelCard, tokenizer: ChatTokenizer) -> None:
        assert card.tool_format is not None
        self._card = card
        self._format = FORMATS[card.tool_format]
        self.tokenizer = tokenizer

    def transcript(self, stream: Stream) -> Transcript:
        """The episode's transcript as it was before its first answer."""
        role = self._card.role("actor")
        return Transcript(
            self.tokenizer,
            self._format,
            stream.messages,
            stream.tools,
            thinking_style=self._card.thinking,
            thinking_tokens=role.thinking_tokens,
            string_tokens=role.string_tokens,
        )


def recording(run: RunData, setup: Setup, renderer: Renderer) -> Recording:
    """Rebuild the streams of a run's finished episodes.

    Args:
        setup: what the run's configuration names.

    Raises:
        RunDirectoryError: nothing was recorded, or a first prompt comes out in another length than recorded,
            since templates, environment or method are not what they were.
        StorageError: the run cannot be read.
    """
    played = sorted([*run.trajectories(), *run.evaluations()], key=lambda each: (each.policy, each.started))
    blocks: dict[int, list[Stream]] = {}
    for each in played:
        if not each.turns:
            continue
        stream = _stream(each, _tools(run, setup, each), setup.card)
        recorded, now = stream.answers[0].usage.prompt, len(renderer.transcript(stream).ids)
        if recorded != now:
            raise RunDirectoryError(
                f"{run.path}: the first prompt of {each.episode} had {recorded} tokens and comes out with"
                f" {now} now: its templates, environment, method or model have changed since"
            )
        blocks.setdefault(each.policy, []).append(stream)
    if not blocks:
        raise RunDirectoryError(f"{run.path} holds no finished episode yet: there is nothing to play again")
    answers = sum(len(stream.answers) for streams in blocks.values() for stream in streams)
    others = sum(row.labels.get("role") != "warming" for row in run.requests) - answers
    return Recording([Block(policy, streams) for policy, streams in blocks.items()], others)


def _tools(run: RunData, setup: Setup, played: Trajectory) -> list[ToolSpec]:
    policy = run.policies.load(played.policy)
    library = setup.method.agent(policy, played.task, setup.env).library
    return [*library.tools(), *([SUBMIT_ANSWER] if setup.env.submits else [])]


def _stream(played: Trajectory, tools: list[ToolSpec], card: ModelCard) -> Stream:
    messages = [{"role": each.role, "content": each.content} for each in played.turns[0].messages]
    return Stream(played.episode, messages, tools, recorded_answers(played.turns, card))


def recorded_answers(turns: Sequence[Turn], card: ModelCard) -> list[Answer]:
    """What the card's actor wrote in the turns of an episode, and what it was told."""
    thinks = card.thinking != "none" and card.role("actor").thinking_tokens > 0
    begin = THINK_BEGIN if card.thinking == "generated" else ""
    replies = [turn.messages[0].content for turn in turns[1:]]
    return [
        Answer(_written(turn, begin) if thinks else turn.text, reply, turn.usage, turn.call is not None)
        for turn, reply in zip(turns, [*replies, None], strict=True)
    ]


def _written(turn: Turn, begin: str) -> str:
    """What a thinking model wrote; an answer that was cut in its thinking has no text."""
    return begin + turn.reasoning + (THINK_END + turn.text if turn.text else "")
