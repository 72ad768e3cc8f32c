"""What one try of a request comes to, of answers that a host gives and no engine of ours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serving.apis.chat_completions import ChatCompletion
from serving.engine.http_client import HttpResponse
from serving.engine.one_try import TokenCompletion, TryFailed, try_once
from serving.errors import ContextOverflow
from serving.usage import Usage

WHOLE: dict[str, Any] = {
    "choices": [{"message": {"content": "x"}}],
    "usage": {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 15},
    },
}


async def tried(**changes: Any) -> Usage:
    async def send() -> HttpResponse:
        return HttpResponse(200, msgspec.json.encode(WHOLE | changes))

    return (await try_once(send, ChatCompletion))[1]


async def test_an_answer_that_failed_may_succeed_again() -> None:
    error = {"code": "server_error", "message": "The model had an error."}
    with pytest.raises(TryFailed, match="the engine failed: The model had an error") as caught:
        await tried(error=error, usage=None)
    assert (caught.value.status, caught.value.usage) == ("failed", None)


async def test_a_context_that_overflows_half_way_is_told_apart() -> None:
    error = {"code": "context_length_exceeded", "message": "Your input is too long."}
    with pytest.raises(ContextOverflow, match="Your input is too long"):
        await tried(error=error, usage=None)


async def test_the_prompt_s_ids_in_an_answer_are_left_out_whatever_its_text_says() -> None:
    text = 'a "prompt_token_ids":[ in a text, and ] too'
    choice = {"text": text, "token_ids": [7, 8], "finish_reason": "stop", "prompt_token_ids": [1, 2, 3]}
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}

    async def send() -> HttpResponse:
        return HttpResponse(200, msgspec.json.encode(body))

    answer, usage = await try_once(send, TokenCompletion)
    assert (answer.choices[0].text, answer.choices[0].token_ids) == (text, [7, 8])
    assert usage == Usage(prompt=3, completion=2)
