"""Typed functions as an agent's tools."""

from __future__ import annotations

from typing import Literal

import pytest

from serving.tokens.tools import ToolCall
from speedrunner.agents.toolbox import Toolbox, ToolError
from speedrunner.store.records import CallNode, Termination


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
    assert read.parameters == {
        "type": "object",
        "properties": {
            "book": {"type": "string"},
            "pages": {"type": "integer", "default": 1},
            "aloud": {"enum": ["yes", "no"], "default": "no"},
        },
        "required": ["book"],
        "additionalProperties": False,
    }


async def test_a_call_returns_its_text_and_is_recorded(toolbox: Toolbox) -> None:
    reply = await toolbox.execute(ToolCall("read", {"book": "Emma", "pages": 3}), 8192)
    assert reply.text == "3 pages of Emma, aloud: no"
    assert reply.termination is None
    assert reply.executed == CallNode(
        "read",
        "tool",
        {"book": "Emma", "pages": 3},
        result="3 pages of Emma, aloud: no",
        seconds=reply.executed.seconds,
    )


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
