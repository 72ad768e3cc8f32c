"""What was recorded of an answer is enough to write it again."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from serving.cards import ModelCard, Role, Roles
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.transcript import Transcript
from serving.usage import Usage
from speedrunner.measure.streams import recorded_answers
from speedrunner.store.records import Message, ToolCall, Turn
from tests.tool_samples import TOOLS

TOOL = TOOLS["nothing"]
CALL = f'<tool_call>\n{{"name": "{TOOL.name}", "arguments": {{}}}}\n</tool_call>'
MESSAGES = [{"role": "user", "content": "Go."}]


def thinking_card(card: ModelCard, style: Literal["none", "generated", "prompted"], tokens: int) -> ModelCard:
    roles = Roles(
        actor=Role(string_tokens=24, thinking_tokens=tokens),
        inducer=msgspec.structs.replace(card.roles.inducer),
    )
    return msgspec.structs.replace(card, thinking=style, roles=roles)


def transcript(card: ModelCard, tokenizer: ChatTokenizer) -> Transcript:
    return Transcript(
        tokenizer,
        FORMATS["qwen3_json"],
        MESSAGES,
        [TOOL],
        thinking_style=card.thinking,
        thinking_tokens=card.roles.actor.thinking_tokens,
        string_tokens=24,
    )


@pytest.mark.parametrize(
    ("style", "begin", "thoughts"),
    [
        ("none", "", [None]),
        ("generated", "", [None]),
        ("generated", "<think>\n", ["Hm.", "", "  I walk.\nAnd on.  "]),
        ("prompted", "", ["Hm.", "", "  I walk.\nAnd on.  "]),
    ],
)
def test_a_turn_holds_all_that_was_written(
    tiny_card: ModelCard,
    tiny_tokenizer: ChatTokenizer,
    style: Literal["none", "generated", "prompted"],
    begin: str,
    thoughts: list[str | None],
) -> None:
    card = thinking_card(tiny_card, style, 0 if thoughts == [None] else 32)
    written = [
        CALL if thought is None else f"{begin}{thought}\n</think>\n\n{text}"
        for thought in thoughts
        for text in (CALL, "No call.", CALL)
    ]
    end = tiny_tokenizer.control_id("<|im_end|>")
    talk = transcript(card, tiny_tokenizer)
    turns, prompts = [], []
    messages = [Message("user", "Go.")]
    for number, text in enumerate(written):
        prompts.append(list(talk.ids))
        answer = talk.answer([*tiny_tokenizer.framed(text), end])
        call = None if answer.call is None else ToolCall(answer.call.name, answer.call.arguments)
        turns.append(Turn(messages, answer.text, Usage(), 0.0, reasoning=answer.reasoning, call=call))
        talk.tell(f"Reply {number}.")
        messages = [Message("tool", f"Reply {number}.")]

    answers = recorded_answers(turns, card)
    assert [answer.written for answer in answers] == written
    again = transcript(card, tiny_tokenizer)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert again.ids == prompt
        again.answer([*tiny_tokenizer.framed(answer.written), end])
        again.tell(answer.reply or "")


def test_an_answer_cut_in_its_thinking_is_that_alone(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    card = thinking_card(tiny_card, "generated", 32)
    answer = transcript(card, tiny_tokenizer).answer(tiny_tokenizer.framed("<think>\nI am still"))
    turn = Turn([], answer.text, Usage(), 0.0, reasoning=answer.reasoning)
    (found,) = recorded_answers([turn], card)
    assert (found.written, found.complete) == ("<think>\nI am still", False)
