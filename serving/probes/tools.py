"""Sends the battery of tool-call probes to an engine, and counts what comes back valid."""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec

from serving.cards import Role, Roles
from serving.conversation import TokenConversation, sampling
from serving.errors import ContextOverflow, RequestRefused, TruncatedCall
from serving.model import Model
from serving.probes.tool_battery import ToolProbe, battery
from serving.tokens.tools import ToolSpec
from serving.usage import Usage

S = TypeVar("S")
T = TypeVar("T")

LABELS = {"role": "probe"}

ROUND = 4
"""Probes of each slot in flight between two changes from constrained to free decoding."""

PROBLEMS_SHOWN = 5

Status = Literal["valid", "invalid", "truncated"]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one probe.

    Attributes:
        status: `truncated` when the answer was cut at `max_tokens` or by the context.
        problem: why it is not valid.
        prompt: token ids that were sent (tokens route).
        token_ids: what was generated (tokens route).
    """

    probe: ToolProbe
    status: Status
    problem: str | None = None
    usage: Usage = Usage()
    prompt: list[int] = []
    token_ids: list[int] = []


class Counts(msgspec.Struct):
    """Calls by what they are worth."""

    valid: int = 0
    invalid: int = 0
    truncated: int = 0

    @property
    def all(self) -> int:
        """How many there are."""
        return self.valid + self.invalid + self.truncated


class Speed(msgspec.Struct):
    """Output tokens of many requests, and the seconds that they took together."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """`None` while nothing was measured."""
        return self.tokens / self.seconds if self.seconds else None


class ToolsReport(msgspec.Struct, kw_only=True):
    """What a battery shows.

    Attributes:
        kinds: counts by kind of probe.
        problems: the first few answers that are not valid, each in one line.
        constrained: of the battery's own requests.
        free: of requests with the same prompts and lengths without a grammar (tokens route only).
    """

    kinds: dict[str, Counts]
    problems: list[str] = []
    constrained: Speed = msgspec.field(default_factory=Speed)
    free: Speed = msgspec.field(default_factory=Speed)

    @property
    def total(self) -> Counts:
        """Counts over all kinds."""
        return Counts(
            valid=sum(each.valid for each in self.kinds.values()),
            invalid=sum(each.invalid for each in self.kinds.values()),
            truncated=sum(each.truncated for each in self.kinds.values()),
        )

    @property
    def overhead(self) -> float | None:
        """Output tokens/s constrained over free; 1 where a grammar costs nothing. `None`: not measured."""
        constrained, free = self.constrained.tokens_per_s, self.free.tokens_per_s
        return constrained / free if constrained and free else None

    def add(self, answered: Answered) -> None:
        """Count one."""
        counts = self.kinds[answered.probe.kind]
        setattr(counts, answered.status, getattr(counts, answered.status) + 1)
        if answered.problem is not None and len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(f"{answered.probe.kind}: {answered.problem}")


async def probe_tools(
    model: Model, role: Role, count: int, in_flight: int, progress: Callable[[int], None] = lambda done: None
) -> ToolsReport:
    """Send `count` probes of the battery in turn.

    On the tokens route, each round of them is followed by requests with the same prompts and lengths that
    are free of a grammar, so that what else the machine does slows both alike. The first twelve probes are
    not timed: they compile the grammars and put the prompts into the cache.

    Args:
        role: sampling and budgets; strings are given more room where a probe needs it.
        in_flight: requests at the same time.
        progress: called with the number of probes that are answered.

    Raises:
        ServingError: the engine failed. On the chat route also where it refuses a probe.
    """
    report = ToolsReport(kinds={probe.kind: Counts() for probe in battery()})

    async def play(batch: list[ToolProbe], speed: Speed) -> list[Answered]:
        # Rendering prompts is work of ours, so it is done before the time counts.
        asked = [_Asked(model, with_room(role, probe), probe, LABELS) for probe in batch]
        with _timed(speed):
            answers = await together(_Asked.answer, asked, in_flight)
        speed.tokens += sum(each.usage.completion for each in answers)
        for each in answers:
            report.add(each)
        progress(report.total.all)
        return answers

    turns = itertools.islice(itertools.cycle(battery()), count)
    await play(list(itertools.islice(turns, len(battery()))), Speed())
    while batch := list(itertools.islice(turns, ROUND * in_flight)):
        answers = await play(batch, report.constrained)
        if model.card.route == "tokens":
            with _timed(report.free):
                free = await together(lambda answer: _free(model, role, answer), answers, in_flight)
            report.free.tokens += sum(free)
    return report


async def send(model: Model, role: Role, probe: ToolProbe, labels: dict[str, str]) -> Answered:
    """Send one probe.

    Args:
        role: sampling and budgets.
        labels: stand in its ledger row.

    Raises:
        ServingError: the engine failed. On the chat route also where it refuses the probe.
    """
    return await _Asked(model, role, probe, labels).answer()


def with_room(role: Role, probe: ToolProbe) -> Role:
    """The role with strings as long as the probe needs them."""
    return msgspec.structs.replace(role, string_tokens=max(role.string_tokens, probe.string_tokens))


def as_role(model: Model, role: Role) -> Model:
    """The same model and engine, with other sampling and budgets."""
    other = copy.copy(model)
    other.card = msgspec.structs.replace(model.card, roles=Roles(actor=role, inducer=role))
    return other


class _Asked:
    """A probe whose conversation is open."""

    def __init__(self, model: Model, role: Role, probe: ToolProbe, labels: dict[str, str]) -> None:
        tools = [_strict(tool) if _built_in(model) else tool for tool in probe.tools]
        self._probe = probe
        self._talk = as_role(model, role).converse("actor", probe.messages, tools, labels)

    async def answer(self) -> Answered:
        """Send it, and close the conversation. Raises as `send`."""
        probe, talk = self._probe, self._talk
        prompt = list(talk.transcript.ids) if isinstance(talk, TokenConversation) else []
        try:
            answer = await talk.ask()
        except ContextOverflow as error:
            return Answered(probe=probe, status="truncated", problem=str(error), prompt=prompt)
        except RequestRefused as error:
            if not prompt:
                raise
            return Answered(probe=probe, status="invalid", problem=str(error), prompt=prompt)
        finally:
            talk.close()
        status: Status = "valid"
        if answer.problem is not None:
            status = "truncated" if isinstance(answer.problem, TruncatedCall) else "invalid"
        return Answered(
            probe=probe,
            status=status,
            problem=None if answer.problem is None else str(answer.problem),
            usage=answer.usage,
            prompt=prompt,
            token_ids=answer.token_ids,
        )


class _StrictTool(ToolSpec, frozen=True):
    """A tool that asks vLLM's built-in tool calls to follow its schema, which they else do not."""

    @property
    def openai(self) -> dict[str, Any]:
        function = super().openai["function"]
        return {"type": "function", "function": {**function, "strict": True}}


def _strict(tool: ToolSpec) -> ToolSpec:
    return _StrictTool(tool.name, tool.doc, tool.parameters)


def _built_in(model: Model) -> bool:
    """Whether calls are vLLM's own: hosted models have other rules for what may be strict."""
    return model.card.route == "chat" and not model.card.hosted


async def _free(model: Model, role: Role, answered: Answered) -> int:
    """Send a probe's prompt again, for as many tokens, without a grammar. Returns the tokens that came."""
    if not answered.token_ids:
        return 0
    reply = await model.engine.complete(
        answered.prompt,
        max_tokens=len(answered.token_ids),
        labels=LABELS,
        ignore_eos=True,
        **sampling(role),
    )
    reply.record("ok", reply.usage)
    return reply.usage.completion


async def together(do: Callable[[S], Awaitable[T]], each: Sequence[S], most: int) -> list[T]:
    """Do the same with all of `each`, at most so many at the same time; the first error ends all."""
    gate = asyncio.Semaphore(most)

    async def one(item: S) -> T:
        async with gate:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in each]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@contextmanager
def _timed(speed: Speed) -> Iterator[None]:
    """Count the seconds that the context lasts."""
    began = time.monotonic()
    try:
        yield
    finally:
        speed.seconds += time.monotonic() - began
