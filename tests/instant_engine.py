"""An engine without a model that answers each request after the same time, to measure what a client adds.

    python -m tests.instant_engine 4 &
    speedrunner bench rollout model=tiny env=babyai serving.url=http://127.0.0.1:8765/v1 --pairs 1

It takes the seconds of an answer, which differ by up to `JITTER`: else all episodes would stay in step. It
reports this time as vLLM does, and sends the prompt back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from serving.engine.endpoint import Endpoint
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare

JITTER = 0.05

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

METRICS = """\
vllm:prompt_tokens_total %d
vllm:prompt_tokens_cached_total 0
vllm:generation_tokens_total %d
vllm:cache_config_info{block_size="32",num_gpu_blocks="1000000",enable_prefix_caching="True"} 1
"""


class InstantEngine:
    """Gives every request the same token ids."""

    def __init__(self, ids: list[int], seconds: float) -> None:
        self._ids = ids
        self._seconds = seconds
        self._prompt = self._generated = 0
        self._random = random.Random(0)

    async def complete(self, body: bytes) -> bytes:
        """The answer to a request, whose prompt is its last field."""
        began = time.monotonic()
        settings, _, prompt = body.removesuffix(b"]}").rpartition(b'"prompt":[')
        ids = self._ids[-json.loads(settings.rstrip(b",") + b"}")["max_tokens"] :]
        usage = {"prompt_tokens": prompt.count(b",") + 1, "completion_tokens": len(ids)}
        self._prompt += usage["prompt_tokens"]
        self._generated += len(ids)
        await asyncio.sleep(self._seconds * self._random.uniform(1 - JITTER, 1 + JITTER))
        timing = {"queue_time_ms": 0, "time_to_first_token_ms": 0}
        timing["generation_time_ms"] = 1000 * (time.monotonic() - began)  # type: ignore[assignment]
        answer = {"choices": [{"token_ids": ids}], "usage": usage, "metrics": timing}
        return json.dumps(answer).encode()[:-1] + b',"prompt_token_ids":[' + prompt + b"]}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, until its client closes it."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                if b" /v1/completions " in head:
                    content = await self.complete(body)
                elif b" /v1/models " in head:
                    content = b'{"data": [{"id": "tiny"}, {"id": "tiny-random"}]}'
                else:
                    content = (METRICS % (self._prompt, self._generated)).encode()
                writer.write(HEAD % len(content) + content)
        writer.close()


@asynccontextmanager
async def open_engine(
    tokenizer: ChatTokenizer, text: str, seconds: float, port: int = 0
) -> AsyncIterator[Endpoint]:
    """Serve on loopback while the context lasts; each answer is this text."""
    ids = [*tokenizer.framed(text), tokenizer.control_id("<|im_end|>")]
    server = await asyncio.start_server(InstantEngine(ids, seconds).serve, "127.0.0.1", port, limit=2**26)
    async with server:
        yield Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")


async def main(seconds: float) -> None:
    """Turn left in BabyAI after some thought, until Ctrl-C."""
    tokenizer = ChatTokenizer(prepare(load_model_config("tiny"), print))
    text = (
        f"<think>\n{'so ' * 40}\n</think>\n\n<tool_call>\n"
        + '{"name": "turn_left", "arguments": {}}\n</tool_call>'
    )
    async with open_engine(tokenizer, text, seconds, 8765):
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(float(sys.argv[1])))
