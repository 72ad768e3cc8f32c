"""The agent loop, over a real conversation with a scripted engine, and functions as an agent's tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Literal

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.agents.loop import Clock, Toolbox, ToolError, ToolReply, run_agent
from speedrunner.store.episode_summary import count_repeats
from speedrunner.store.records import CallNode, Message, Termination, Turn
from tests.clocks import Clock as FakeClock
from tests.scripted_engine import HANG, Answer, Request, Script, call, cut, say
from tests.scripted_runs import ScriptedModel, roomy, scripted_model

OPENING = [Message("system", "You dig."), Message("user", "Dig to the bottom.")]


def dig(depth: int) -> str: ...  # type: ignore[empty-body]


TOOLS = [ToolSpec.from_signature("dig", inspect.signature(dig, eval_str=True), "Dig.")]
DEEPER = call("dig", depth=1)
LIMIT_S = 60.0


async def executed(tool: ToolCall) -> ToolReply:
    """Digging to depth 9 is the end."""
    node = CallNode(tool.name, "tool", tool.arguments, result="dug")
    termination = Termination.SUCCESS if tool.arguments["depth"] == 9 else None
    return ToolReply(f"You are {tool.arguments['depth']} deep.", node, termination)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch, "speedrunner.agents.loop")


class Work:
    """What came of an agent's work."""

    def __init__(self, engine: ScriptedModel, turns: list[Turn], termination: Termination | None) -> None:
        self.engine, self.turns, self.termination = engine, turns, termination

    @property
    def requests(self) -> list[Request]:
        return self.engine.server.requests


@pytest.fixture
def work(tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer) -> Callable[..., Awaitable[Work]]:
    async def work(
        script: Script,
        *,
        llm_calls: int = 10,
        deadline: float = inf,
        answers_count: bool = True,
        execute: Callable[[ToolCall], Awaitable[ToolReply]] = executed,
        context: int | None = None,
        error: type[BaseException] | None = None,
        most_repeats: int = 0,
    ) -> Work:
        model_config = roomy(tiny_model_config, context=context or tiny_model_config.context)
        turns: list[Turn] = []
        async with scripted_model(script, model_config, tiny_tokenizer) as engine:
            plain = [{"role": each.role, "content": each.content} for each in OPENING]
            conversation = engine.model.converse("actor", plain, TOOLS, {"episode": "x"})
            limits = Clock(llm_calls, deadline, answers_count)
            job = run_agent(
                conversation,
                OPENING,
                execute,
                limits,
                lambda turn, *_: turns.append(turn),
                most_repeats=most_repeats,
            )
            if error is None:
                return Work(engine, turns, await job)
            with pytest.raises(error):
                await job
            return Work(engine, turns, None)

    return work


class TestEndings:
    async def test_a_tool_ends_it(self, work: Any) -> None:
        done = await work([DEEPER, call("dig", depth=9)])
        assert done.termination is Termination.SUCCESS
        assert [turn.call.arguments for turn in done.turns] == [{"depth": 1}, {"depth": 9}]

    async def test_the_calls_are_used_up(self, work: Any) -> None:
        done = await work([DEEPER] * 5, llm_calls=3)
        assert done.termination is Termination.CALL_LIMIT
        assert len(done.turns) == len(done.requests) == 3

    async def test_the_deadline_comes_while_the_model_is_asked(self, work: Any, clock: FakeClock) -> None:
        def hang(request: Request) -> Answer:
            if request.turn == 0:
                return DEEPER
            clock.advance(LIMIT_S)
            return HANG

        done = await work(hang, deadline=clock.monotonic() + LIMIT_S)
        assert done.termination is Termination.WALL_CLOCK
        assert len(done.turns) == 1
        assert [row.status for row in done.engine.rows] == ["ok", "aborted"]

    async def test_answers_take_their_time_where_tools_alone_count(self, work: Any, clock: FakeClock) -> None:
        def slow(request: Request) -> Answer:
            clock.advance(LIMIT_S)
            return call("dig", depth=9) if request.turn == 3 else DEEPER

        done = await work(slow, deadline=clock.monotonic() + LIMIT_S, answers_count=False)
        assert (done.termination, len(done.turns)) == (Termination.SUCCESS, 4)

    @pytest.mark.parametrize("answers_count", [True, False])
    async def test_the_deadline_comes_while_a_tool_runs(
        self, work: Any, clock: FakeClock, answers_count: bool
    ) -> None:
        async def slow(tool: ToolCall) -> ToolReply:
            clock.advance(LIMIT_S)
            return await executed(tool)

        done = await work(
            [DEEPER] * 9, deadline=clock.monotonic() + LIMIT_S, execute=slow, answers_count=answers_count
        )
        assert done.termination is Termination.WALL_CLOCK
        assert [turn.executed.result for turn in done.turns] == ["dug"]

    async def test_the_conversation_fills_the_context(self, work: Any) -> None:
        full = await work([DEEPER] * 30, llm_calls=30)
        size = len(full.requests[2].prompt)
        done = await work([DEEPER] * 30, context=size)
        assert (done.termination, len(done.turns)) == (Termination.CONTEXT_OVERFLOW, 2)

    async def test_an_answer_that_does_not_fit_the_context_is_the_last_turn_with_its_tokens(
        self, work: Any
    ) -> None:
        full = await work([DEEPER] * 30, llm_calls=30)
        size = len(full.requests[1].prompt)
        done = await work([DEEPER] * 30, context=size + 5)
        assert (done.termination, len(done.turns)) == (Termination.CONTEXT_OVERFLOW, 2)
        last = done.turns[-1]
        assert "did not fit the 5 tokens left of the context" in last.error
        assert (last.call, last.executed, last.usage.completion) == (None, None, 5)
        assert last.text != ""
        assert full.turns[1].text.startswith(last.text)
        assert [turn.usage for turn in done.turns] == [row.usage for row in done.engine.rows]
        assert not any(row.wasted for row in done.engine.rows)

    @pytest.mark.parametrize("most", [1, 3])
    async def test_repeated_calls_end_it_after_so_many_in_a_row(self, work: Any, most: int) -> None:
        other = [DEEPER, call("dig", depth=2)]
        done = await work([*other, *other, *[DEEPER] * 9], llm_calls=20, most_repeats=most)
        assert done.termination is Termination.REPEAT_LIMIT
        assert len(done.turns) == len(done.requests) == 4 + 1 + most
        assert count_repeats(done.turns) == most


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (say("I would rather talk."), "not one tool call"),
        (cut(DEEPER), "the answer was cut after 8 tokens"),
        (call("climb"), "there is no tool 'climb'; available: dig"),
        (call("dig", depth="deep"), "'deep' at depth is not of type integer"),
    ],
)
async def test_invalid_answers_are_told_to_the_model_and_recorded(
    work: Any, answer: Answer, problem: str
) -> None:
    done = await work([answer, call("dig", depth=9)])
    assert done.termination is Termination.SUCCESS
    invalid, valid = done.turns
    assert invalid.call is None
    assert invalid.executed is None
    assert problem in invalid.error
    (message,) = valid.messages
    assert message.role == "user"
    assert message.content == (f"Error: {invalid.error}. Answer with exactly one tool call.")
    assert done.requests[1].last == message.content


class TestTurns:
    async def test_messages_are_those_added_since_the_turn_before(self, work: Any) -> None:
        done = await work([DEEPER, call("dig", depth=2), call("dig", depth=9)])
        assert [turn.messages for turn in done.turns] == [
            OPENING,
            [Message("tool", "You are 1 deep.")],
            [Message("tool", "You are 2 deep.")],
        ]

    async def test_they_hold_what_was_written_and_what_it_took(self, work: Any) -> None:
        done = await work([call("dig", depth=9)])
        (turn,), (row,) = done.turns, done.engine.rows
        assert turn.text == call("dig", depth=9).written
        assert turn.executed == CallNode("dig", "tool", {"depth": 9}, result="dug")
        assert turn.usage == row.usage
        assert turn.usage.completion > 0
        assert turn.seconds > 0

    @pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
    async def test_a_turn_whose_tool_raises_is_recorded_too(
        self, work: Any, error: type[BaseException]
    ) -> None:
        async def broken(tool: ToolCall) -> ToolReply:
            raise error

        done = await work([DEEPER], execute=broken, error=error)
        (turn,) = done.turns
        assert turn.call == ToolCall("dig", {"depth": 1})
        assert turn.executed is None


class Shelf:
    """Tools over a shelf of books."""

    def __init__(self) -> None:
        self.books = ["Emma"]

    def read(self, book: str, pages: int = 1, aloud: Literal["yes", "no"] = "no") -> str:
        """Read some pages.

        The book must be there.
        """
        if book not in self.books:
            raise ToolError(f"there is no book {book!r}")
        return f"{pages} pages of {book}, aloud: {aloud}"

    def burn(self) -> str:
        """Burn the shelf."""
        raise OSError("no matches")

    def leave(self, word: str) -> str:
        """Go home."""
        if word != "please":
            raise ToolError("say please")
        return "Goodbye."


@pytest.fixture
def toolbox() -> Toolbox:
    shelf = Shelf()
    return Toolbox([shelf.read, shelf.burn], shelf.leave)


def test_specs_are_made_of_signatures_and_docstrings_in_order_with_the_finish_last(toolbox: Toolbox) -> None:
    assert [spec.name for spec in toolbox.specs] == ["read", "burn", "leave"]
    read = toolbox.specs[0]
    assert read.doc == "Read some pages.\n\nThe book must be there."
    assert list(read.parameters["properties"]) == ["book", "pages", "aloud"]


async def test_a_call_returns_its_text_and_is_recorded(toolbox: Toolbox) -> None:
    given, text = {"book": "Emma", "pages": 3}, "3 pages of Emma, aloud: no"
    reply = await toolbox.execute(ToolCall("read", given), 8192)
    assert (reply.text, reply.termination) == (text, None)
    assert reply.executed == CallNode("read", "tool", given, text, seconds=reply.executed.seconds)


async def test_a_refusal_goes_back_to_the_agent(toolbox: Toolbox) -> None:
    reply = await toolbox.execute(ToolCall("read", {"book": "Ulysses"}), 8192)
    assert reply.text == "Error: there is no book 'Ulysses'"
    assert (reply.executed.result, reply.executed.error) == (None, "there is no book 'Ulysses'")
    assert reply.termination is None


async def test_a_mistake_of_ours_is_raised(toolbox: Toolbox) -> None:
    with pytest.raises(OSError, match="no matches"):
        await toolbox.execute(ToolCall("burn", {}), 8192)


async def test_finishing_ends_the_work_unless_it_is_refused(toolbox: Toolbox) -> None:
    refused = await toolbox.execute(ToolCall("leave", {"word": "now"}), 8192)
    done = await toolbox.execute(ToolCall("leave", {"word": "please"}), 8192)
    assert (refused.termination, done.termination) == (None, Termination.SUBMITTED)


async def test_a_string_that_was_cut_is_refused_with_the_cause(toolbox: Toolbox) -> None:
    reply = await toolbox.execute(ToolCall("read", {"book": "Emma"}, ("book",)), 8192)
    why = "a string can have at most 8,192 tokens. Send it in parts."
    assert reply.text == f"Error: book was cut, and the call was not executed: {why}"
    assert (reply.executed.error, reply.termination) == (reply.text.removeprefix("Error: "), None)
    assert (await toolbox.execute(ToolCall("leave", {"word": "please"}, ("word",)), 8192)).termination is None
    both = await toolbox.execute(ToolCall("read", {"book": "Emma"}, ("book", "page")), 8192)
    assert both.text == f"Error: book and page were cut, and the call was not executed: {why}"
