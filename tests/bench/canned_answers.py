"""A process that answers completions without a model: `python canned_answers.py SOCKET DELAY_S`.

It reads a JSON list of answers, each a list of token ids, from standard input, and gives them in turn. Like
vLLM, it sends the prompt's ids back. It imports the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client's, on which requests follow one another."""

    def __init__(self, answers: Iterator[list[int]], delay_s: float) -> None:
        self._answers = answers
        self._delay_s = delay_s
        self._received = bytearray()
        self._whole = 0
        """Bytes of the request that is being received; 0 before its head is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        if not self._whole:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            self._whole = end + 4 + length
        if len(self._received) >= self._whole:
            request, self._received, self._whole = bytes(self._received), bytearray(), 0
            asyncio.get_running_loop().call_later(self._delay_s, self._answer, request)

    def _answer(self, request: bytes) -> None:
        prompt = request.partition(b'"prompt":[')[2].partition(b"]")[0]
        ids, length = next(self._answers), prompt.count(b",") + 1
        choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "stop", "prompt_token_ids": []}
        usage = {"prompt_tokens": length, "completion_tokens": len(ids)}
        text = json.dumps({"choices": [choice], "usage": usage}, separators=(",", ":")).encode()
        body = text.replace(b'"prompt_token_ids":[', b'"prompt_token_ids":[' + prompt)
        self._transport.write(HEAD % len(body) + body)


async def serve(socket: str, delay_s: float) -> None:
    """Answer until the process is ended."""
    answers = itertools.cycle(json.load(sys.stdin))
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(answers, delay_s), socket, backlog=2048)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
