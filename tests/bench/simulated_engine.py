"""An engine without a model that is as fast as one on GPUs.

`python -m tests.bench.simulated_engine SOCKET` reads an `EngineSpec` as JSON from standard input and serves
on a Unix socket. Tokens, cache hits and waits follow the spec. Each answer is a legal call that the request's
structural tag allows, drawn with a seed.

The model of a replica is a simplification. Requests wait in line for one of `sequences` places. A new request
first computes its uncached tokens; decoding pauses meanwhile. Then all running requests get one token per
step. The cache holds whole blocks and, on a hybrid model, a state at the end of each prompt, with the other
blocks of a conversation (`HYBRID_EXTRA_BLOCKS`) at the end of its last one. It evicts the least recently used
ones.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from serving.engine.cache_config import HYBRID_EXTRA_BLOCKS, CacheConfig
from serving.engine.ideal_cache import IdealCache
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer

VARIANTS = 32
"""Different answers to requests with the same structural tag."""

WORD = "door"
"""The text of every string argument, which is legal in every format and names something in most worlds."""

ENDS_EPISODES = "submit_answer"
"""Calls that are drawn only if nothing else is legal, so that episodes reach their limits."""


class EngineSpec(msgspec.Struct, frozen=True):
    """The engine to simulate.

    Attributes:
        model: name under which the model is served.
        context: longest prompt and answer together, in tokens.
        folder: folder of its tokenizer.
        tool_format: format of its tool calls.
        cache: the prefix cache of one replica.
        replicas: copies of the model.
        sequences: requests that one replica computes at the same time.
        step_s: seconds of one decoding step, which gives each running request a token.
        prefill_per_s: uncached prompt tokens per second of one replica.
        answer_tokens: tokens of an answer, if its grammar has a thinking region to fill.
    """

    model: str
    context: int
    folder: str
    tool_format: str
    cache: CacheConfig
    replicas: int
    sequences: int
    step_s: float
    prefill_per_s: float
    answer_tokens: int


class LimitedCache:
    """The prefix cache of one replica: vLLM's rule, see `ideal_cache`, with a limited number of blocks."""

    def __init__(self, config: CacheConfig) -> None:
        self._config = config
        self._links = IdealCache(config).links
        self._states: OrderedDict[int, int] = OrderedDict()
        """Blocks that each stored prefix takes, least recently used first."""
        self._blocks = 0

    def send(self, prompt: list[int], salt: str) -> int:
        """Record a prompt. Returns its cached tokens."""
        config = self._config
        units = self._links(hash(salt), prompt)
        end, step = (len(prompt) - 1) // config.match_unit, config.block_size // config.match_unit
        found = next((at for at in range(end, 0, -1) if units[at - 1] in self._states), 0)
        for at in range(step, len(units) + 1, step):
            self._keep(units[at - 1], 1)
        if config.hybrid and end:
            for at in range(found, max(found - step, 0), -1):
                if units[at - 1] in self._states:  # the conversation continues here, with its other blocks
                    self._keep(units[at - 1], 1)
            self._keep(units[end - 1], HYBRID_EXTRA_BLOCKS)
        while self._blocks > config.num_gpu_blocks - 1 and self._states:
            self._blocks -= self._states.popitem(last=False)[1]
        return found * config.match_unit

    def _keep(self, link: int, blocks: int) -> None:
        self._blocks += blocks - self._states.pop(link, 0)
        self._states[link] = blocks


class Work(NamedTuple):
    """A request's tokens to compute, and the future that its last token completes."""

    uncached: int
    output: int
    done: asyncio.Future[None]


class SimulatedReplica:
    """One copy of the model, as a queue of work."""

    def __init__(self, spec: EngineSpec) -> None:
        self.cache = LimitedCache(spec.cache)
        self._spec = spec
        self._waiting: deque[Work] = deque()
        self._running: list[tuple[float, int, asyncio.Future[None]]] = []
        """A heap, by the step at which a request ends."""
        self._steps = 0.0
        self._numbers = itertools.count()
        self._arrival = asyncio.Event()

    @property
    def active(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._running)

    async def compute(self, uncached: int, output: int) -> None:
        """Return after the time that this many uncached prompt tokens and output tokens take."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(Work(uncached, output, done))
        self._arrival.set()
        await done

    async def work(self) -> None:
        """Serve requests until cancelled.

        The clock of the simulation is kept apart from the process's, so that a late wake-up delays nothing.
        """
        spec, now = self._spec, time.monotonic()
        while True:
            if not self.active:
                self._arrival.clear()
                await self._arrival.wait()
                now = time.monotonic()
            if self._waiting and len(self._running) < spec.sequences:
                work = self._waiting.popleft()
                now += work.uncached / spec.prefill_per_s
                await self._sleep_until(now)
                entry = self._steps + work.output, next(self._numbers), work.done
                heapq.heappush(self._running, entry)
                continue
            last, _, done = self._running[0]
            self._arrival.clear()
            end = now + (last - self._steps) * spec.step_s
            if len(self._running) < spec.sequences and await self._arrives_before(end):
                then = min(time.monotonic(), end)
                self._steps += (then - now) / spec.step_s
                now = then
                continue
            await self._sleep_until(end)
            heapq.heappop(self._running)
            self._steps, now = last, end
            if not done.cancelled():
                done.set_result(None)

    async def _arrives_before(self, end: float) -> bool:
        try:
            async with asyncio.timeout(max(end - time.monotonic(), 0.0)):
                await self._arrival.wait()
        except TimeoutError:
            return False
        return True

    @staticmethod
    async def _sleep_until(moment: float) -> None:
        if (seconds := moment - time.monotonic()) > 0:
            await asyncio.sleep(seconds)


class Answers:
    """Draws legal answers from structural tags."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._tokenizer = ChatTokenizer(Path(spec.folder))
        self._end = self._tokenizer.control_id(FORMATS[spec.tool_format].FRAME.end_of_turn)
        self._known: dict[str, list[list[int]]] = {}
        self._draw = random.Random(0)

    def answer(self, tag: str | None, limit: int) -> tuple[list[int], str]:
        """Return the ids of an answer, and its finish reason."""
        variants = self._known.get(tag or "")
        if variants is None:
            variants = self._known[tag or ""] = [self._write(tag) for _ in range(VARIANTS)]
        ids = self._draw.choice(variants)
        return (ids, "stop") if len(ids) <= limit else (ids[:limit], "length")

    def _write(self, tag: str | None) -> list[int]:
        if tag is None:
            return [*self._tokenizer.framed(WORD), self._end]
        form = msgspec.json.decode(tag)["format"]
        short = self._tokenizer.framed(self.text(form, ""))
        missing, thought = self._spec.answer_tokens - len(short), f" {WORD}"
        width = len(self._tokenizer.framed(thought * 16)) / 16
        long = self.text(form, thought * max(int(missing / width), 0))
        return [*self._tokenizer.framed(long), self._end]

    def text(self, form: Mapping[str, Any], thought: str) -> str:
        """Return a text that a node of a structural tag allows, with `thought` as thinking."""
        match form["type"]:
            case "const_string":
                return str(form["value"])
            case "sequence":
                return "".join(self.text(each, thought) for each in form["elements"])
            case "or" if all(each["type"] == "tag" for each in form["elements"]):
                return self.text(form["elements"][0], thought)  # thinking that ends by itself
            case "or":
                texts = [self.text(each, thought) for each in form["elements"]]
                return self._draw.choice([each for each in texts if ENDS_EPISODES not in each] or texts)
            case "tag":
                inside = self._cut(thought, form["content"])
                return f"{form['begin']}{inside}{form['end']}"
            case "any_text":
                return WORD
            case "grammar":  # a JSON string
                return f'"{WORD}"'
            case "regex":  # an integer or another number
                return "1"
            case "optional" | "repeat":
                return ""
        raise ValueError(f"a structural tag has a node {form['type']!r}")

    def _cut(self, thought: str, region: Mapping[str, Any]) -> str:
        """Return as much of the thought as a thinking region allows; a word takes at least one token."""
        most: int = region["max_tokens"]
        while len(self._tokenizer.framed(thought)) > most:
            thought = thought[: len(thought) // 2]
        return thought


class Completions:
    """The engine's API: completions, counters and description."""

    def __init__(self, spec: EngineSpec) -> None:
        self.replicas = [SimulatedReplica(spec) for _ in range(spec.replicas)]
        self._spec = spec
        self._answers = Answers(spec)
        self._next = itertools.cycle(range(spec.replicas))
        self._prompt = self._cached = self._generated = self._finished = 0
        self._seconds = 0.0

    async def get(self, path: str) -> bytes:
        """Return the content of a page."""
        if path == "/v1/models":
            model = {"id": self._spec.model, "max_model_len": self._spec.context}
            return msgspec.json.encode({"object": "list", "data": [model]})
        return self._metrics().encode() if path == "/metrics" else b"{}"

    async def complete(self, body: bytes, rank: int | None) -> bytes:
        """Answer a completion after the time that it takes.

        Args:
            rank: the replica to use; `None` for the next one.
        """
        arrived = time.monotonic()
        request = msgspec.json.decode(body)
        replica = self.replicas[next(self._next) if rank is None else rank]
        prompt = request["prompt"]
        tag = request.get("structured_outputs", {}).get("structural_tag")
        limit = min(request["max_tokens"], self._spec.context - len(prompt))
        if limit <= 0:
            message = f"This model's maximum context length is {self._spec.context} tokens"
            return msgspec.json.encode({"error": {"message": message, "type": "error", "code": 400}})
        ids, reason = self._answers.answer(tag, limit)
        cached = replica.cache.send(prompt, request.get("cache_salt", ""))
        await replica.compute(len(prompt) - cached, len(ids))
        self._prompt += len(prompt)
        self._cached += cached
        self._generated += len(ids)
        self._finished += 1
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "finish_reason": reason,
            "prompt_token_ids": prompt,
        }
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self._seconds += time.monotonic() - arrived
        return msgspec.json.encode({"choices": [choice], "usage": usage})

    def _metrics(self) -> str:
        cache = self._spec.cache
        settings = {
            "block_size": cache.block_size,
            "num_gpu_blocks": cache.num_gpu_blocks * self._spec.replicas,
            "enable_prefix_caching": cache.enable_prefix_caching,
            "prefix_match_unit": cache.match_unit,
            "mamba_cache_mode": "align" if cache.hybrid else "none",
        }
        text = ",".join(f'{name}="{value}"' for name, value in settings.items())
        lines = [
            f'vllm:prompt_tokens_total{{engine="0"}} {self._prompt}',
            f'vllm:prompt_tokens_cached_total{{engine="0"}} {self._cached}',
            f'vllm:generation_tokens_total{{engine="0"}} {self._generated}',
            f'vllm:request_success_total{{engine="0"}} {self._finished}',
            f'vllm:e2e_request_latency_seconds_sum{{engine="0"}} {self._seconds}',
        ]
        for number, replica in enumerate(self.replicas):
            lines.append(f'vllm:num_requests_running{{engine="{number}"}} {replica.active}')
            lines.append(f'vllm:cache_config_info{{engine="{number}",{text}}} 1')
        return "\n".join([*lines, ""])


class Connection(asyncio.Protocol):
    """A client's connection; its requests follow one another."""

    def __init__(self, completions: Completions) -> None:
        self._completions = completions
        self._received = bytearray()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        whole = end + 4 + int(headers.get("content-length", 0))
        if len(self._received) >= whole:
            body, self._received = bytes(self._received[end + 4 : whole]), self._received[whole:]
            self._answering = asyncio.create_task(self._answer(first.split()[1], headers, body))

    async def _answer(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        try:
            await self._write_answer(path, headers, body)
        except Exception:
            self._transport.abort()  # otherwise the client waits forever
            raise

    async def _write_answer(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        if body:
            rank = headers.get("x-data-parallel-rank")
            content = await self._completions.complete(body, None if rank is None else int(rank))
        else:
            content = await self._completions.get(path)
        status = b"400 Bad Request" if content.startswith(b'{"error"') else b"200 OK"
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (status, len(content)) + content)


async def serve(socket: str) -> None:
    """Serve until the process is ended."""
    completions = Completions(msgspec.json.decode(sys.stdin.buffer.read(), type=EngineSpec))
    loop = asyncio.get_running_loop()
    working = [asyncio.create_task(each.work()) for each in completions.replicas]
    server = await loop.create_unix_server(lambda: Connection(completions), socket, backlog=2048)
    print("ready", flush=True)
    async with server:
        await asyncio.gather(*working)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
