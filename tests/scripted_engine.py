"""An engine without a model: real HTTP on loopback, answers by script, faults on demand, honest counters.

A script is a list of answers, or a function of the request (`policy`), which can play whole runs:

    def policy(request: Request) -> Answer:
        if "write_skill" in request.tools:
            return call("finish")
        return call("go_forward") if request.turn < 5 else call("turn_left")

    with ScriptedEngine(tokenizer, policy) as engine:
        ...  # engine.endpoint
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, Self

from serving.engine.endpoint import Endpoint
from serving.tokens.tokenizer import ChatTokenizer
from tests.processes import HANGS_S
from tests.responses_api import read_messages, write_response

BLOCK = 32
"""Tokens per block of the prefix cache."""

START, END = "<|im_start|>", "<|im_end|>"


@dataclass(frozen=True)
class Answer:
    """One answer. Its attributes beyond the text are what can go wrong with it."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()  # name, arguments as JSON
    thinking: str | None = None
    finish: str | None = None  # instead of the true finish_reason
    keep: int | None = None  # tokens that are kept of it
    usage: bool = True
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after: threading.Event | None = None  # what it waits for, while others are answered
    fault: Literal["drop", "hang", "die", "twice"] | None = None
    edit: Callable[[dict[str, Any]], Any] = field(default=lambda content: content, compare=False)

    @property
    def written(self) -> str:
        """What the model would have written."""
        thought = "" if self.thinking is None else f"<think>\n{self.thinking}\n</think>\n\n"
        calls = (
            f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
            for name, arguments in self.calls
        )
        return thought + self.text + "\n".join(calls)


def call(name: str, /, **arguments: Any) -> Answer:
    """One tool call."""
    return Answer(calls=((name, json.dumps(arguments, ensure_ascii=False)),))


def two_calls(first: Answer, second: Answer) -> Answer:
    """Two calls in one answer."""
    return Answer(calls=first.calls + second.calls)


def say(text: str) -> Answer:
    """Text without a call."""
    return Answer(text)


def cut(answer: Answer, tokens: int = 8) -> Answer:
    """The first tokens of an answer, as if its limit had been reached."""
    return replace(answer, keep=tokens, finish="length")


def cut_arguments(name: str, arguments: str) -> Answer:
    """A call whose arguments are cut although `finish_reason` says that it is complete (chat API)."""
    return Answer(calls=((name, arguments),), finish="tool_calls")


def abort(answer: Answer, tokens: int = 4) -> Answer:
    """HTTP 200 with a partial answer, which a shutdown gives."""
    return replace(answer, keep=tokens, finish="abort")


def refuse(status: int, message: str, **headers: str) -> Answer:
    """An error with its HTTP status; headers with `_` for `-`."""
    return Answer(message, status=status, headers={name.replace("_", "-"): headers[name] for name in headers})


def rate_limit(seconds: float) -> Answer:
    """429 with Retry-After."""
    return refuse(429, "Rate limit reached", Retry_After=str(seconds))


def overflow(context: int = 16384, exactly: bool = False) -> Answer:
    """The context overflow, which is told in other words when the prompt fills the context exactly."""
    beyond = f"This model's maximum context length is {context} tokens; the prompt holds more."
    return refuse(400, "max_tokens must be at least 1, got 0." if exactly else beyond)


DYING = refuse(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
DEATH = replace(DYING, fault="die")
"""The engine's core dies, and the server with it."""
DROP = Answer("half of an answer", fault="drop")
"""The connection is lost in the middle of the answer."""
HANG = Answer(fault="hang")
"""No answer until the engine is stopped."""
GARBAGE = Answer("x", edit=lambda content: b"{")
"""An answer that is no JSON."""
LATIN = Answer("A", edit=lambda content: json.dumps(content).replace("A", "é").encode("latin-1"))
"""An answer whose text is not in UTF-8."""


@dataclass(frozen=True)
class Request:
    """One request as it came.

    Attributes:
        number: from 0, in the order of arrival.
        received: monotonic seconds.
        prompt: token ids (on the chat API, of these as JSON).
        messages: role and content of each turn so far.
        tools: name -> the tool as the model sees it.
    """

    number: int
    received: float
    path: str
    body: dict[str, Any]
    prompt: tuple[int, ...]
    messages: tuple[tuple[str, str], ...]
    tools: dict[str, Any]

    @property
    def warms(self) -> bool:
        """Whether it wants no answer: it puts a prefix into the cache."""
        return self.body.get("max_tokens") == 1 and len(self.prompt) > 1

    @property
    def probes(self) -> bool:
        """Whether it is one of those with which a run tries an engine before its first episode."""
        return bool(self.tools) and all(name.startswith("probe_") for name in self.tools)

    @property
    def turn(self) -> int:
        """Answers that the conversation holds already."""
        return sum(role == "assistant" for role, _ in self.messages)

    @property
    def system(self) -> str:
        """The system message, which tells the roles apart."""
        return self.messages[0][1] if self.messages[0][0] == "system" else ""

    @property
    def task(self) -> str:
        """The first user message, which tells the episodes apart."""
        return next((content for role, content in self.messages if role == "user"), "")

    @property
    def last(self) -> str:
        """The newest message: what the last call was answered with."""
        return self.messages[-1][1]


Script = Callable[[Request], Answer] | Sequence[Answer]


class ScriptedEngine:
    """The server, in threads of its own; a context manager.

    Attributes:
        requests: every request for an answer so far; those that warm a prefix up or
            probe the engine are answered without the script.
        answers_probes: whether it does so with probes.
        find_faults: returns why it refuses a request.
        context: tokens that it says it takes; it takes any number.
        mistakes: what went wrong in the script itself; raised at the end.
        prompt, cached, generated: the counters that `/metrics` shows.
        likely: log-probabilities of the likeliest tokens by id after a prompt with so many cached tokens, for
            requests that ask for them.
    """

    def __init__(
        self, tokenizer: ChatTokenizer, script: Script, model: str = "tiny-random", api_key: str | None = None
    ) -> None:
        self.model = model
        self.api_key = api_key
        self.requests: list[Request] = []
        self.mistakes: list[BaseException] = []
        self.prompt = self.cached = self.generated = 0
        self.script = script
        self.answers_probes = True
        self.find_faults: Callable[[dict[str, Any]], Iterable[str]] = lambda body: []
        self.context: int | None = None
        self.likely: Callable[[tuple[int, ...], int], dict[int, float]] = lambda prompt, cached: {}
        self._served = 0
        self._tokenizer = tokenizer
        self._salt = ""
        self._blocks: set[tuple[str, tuple[int, ...]]] = set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self)

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens, also after a `restart`."""
        return Endpoint(f"http://127.0.0.1:{self._server.server_address[1]}/v1", api_key=self.api_key)

    def stop(self) -> None:
        """End it and every connection; new ones are refused."""
        self._server.end()

    def restart(self, *, elsewhere: bool = False) -> None:
        """Serve again with an empty cache, at the same address or at another port."""
        address = self._server.server_address
        if elsewhere:  # opened while the old port is taken
            server = _Server((str(address[0]), 0), self)
            self.stop()
        else:
            self.stop()
            server = _Server((str(address[0]), int(address[1])), self)
        self._blocks.clear()
        self._server = server
        self._start()

    def forget(self) -> None:
        """Drop the recorded requests and the cache, which grow with each request."""
        self.requests.clear()
        self._blocks.clear()

    def _start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.mistakes:
            raise self.mistakes[0]

    @property
    def metrics(self) -> str:
        """`/metrics` in Prometheus' text format."""
        counters = {
            "prompt_tokens": self.prompt,
            "prompt_tokens_cached": self.cached,
            "generation_tokens": self.generated,
        }
        lines = [f'vllm:{name}_total{{engine="0"}} {value}' for name, value in counters.items()]
        cache = f'block_size="{BLOCK}",num_gpu_blocks="1000",enable_prefix_caching="True"'
        return "\n".join([*lines, f"vllm:cache_config_info{{{cache}}} 1", ""])

    @property
    def listed(self) -> dict[str, Any]:
        """What `/v1/models` says of the model."""
        return {"id": self.model} | ({} if self.context is None else {"max_model_len": self.context})

    def answer(self, path: str, body: dict[str, Any]) -> tuple[Answer, bytes]:
        """What the script says to a request, and the response's body."""
        with self._lock:
            request = self._read(path, body)
            if request.warms or (request.probes and self.answers_probes):
                unasked = say("") if request.warms else sample_call(request)
                return unasked, json.dumps(self._complete(request, unasked)).encode()
            self.requests.append(request)
            faults = list(self.find_faults(body))
            try:
                if callable(self.script):
                    answer = self.script(request)
                else:
                    answer = self.script[self._served]
                    self._served += 1
                answer = refuse(400, "; ".join(faults)) if faults else answer
            except Exception as error:
                self.mistakes.append(error)
                answer = refuse(400, f"the script failed: {error!r}")
            if answer.status != 200:
                content: Any = {"error": {"message": answer.text, "type": "error", "code": answer.status}}
            elif answer.fault == "hang":
                content = {}
            else:
                content = answer.edit(self._complete(request, answer))
            return answer, content if isinstance(content, bytes) else json.dumps(content).encode()

    def _read(self, path: str, body: dict[str, Any]) -> Request:
        number = len(self.requests)
        if "input" in body:
            turns = tuple(read_messages(body["input"]))
            tools = {tool["name"]: {"type": "function", "function": tool} for tool in body["tools"]}
            prompt = tuple(self._tokenizer.outside_text(json.dumps([body["tools"], *body["input"]])))
            return Request(number, time.monotonic(), path, body, prompt, turns, tools)
        if "prompt" not in body:
            sent = body["messages"]
            messages = tuple((each["role"], str(each.get("content") or "")) for each in sent)
            tools = {tool["function"]["name"]: tool for tool in body.get("tools", [])}
            whole = json.dumps(body.get("tools", [])) + "".join(map(json.dumps, sent))
            prompt = tuple(self._tokenizer.outside_text(whole))
            return Request(number, time.monotonic(), path, body, prompt, messages, tools)
        prompt = tuple(body["prompt"])
        starts = [n for n, token in enumerate(prompt) if token == self._tokenizer.control_id(START)]
        turns = [
            self._tokenizer.decode(list(prompt[begin + 1 : end]))
            for begin, end in pairwise([*starts, len(prompt)])
        ]
        pairs = (turn.partition("\n") for turn in turns)
        messages = tuple((role, content.strip().removesuffix(END)) for role, _, content in pairs)
        if messages and messages[-1][0] == "assistant":  # the turn that is to be written
            messages = messages[:-1]
        lines = messages[0][1].partition("<tools>\n")[2].partition("\n</tools>")[0] if messages else ""
        tools = {tool["function"]["name"]: tool for tool in map(json.loads, lines.splitlines())}
        return Request(number, time.monotonic(), path, body, prompt, messages, tools)

    def _complete(self, request: Request, answer: Answer) -> dict[str, Any]:
        chat = request.path.endswith("/chat/completions")
        body = request.body
        ids = [*self._tokenizer.framed(answer.written), self._tokenizer.control_id(END)]
        limits = ("max_completion_tokens", "max_tokens", "max_output_tokens")
        limit = next((body[name] for name in limits if body.get(name)), len(ids))
        kept = ids[: min(limit, len(ids) if answer.keep is None else answer.keep)]
        if only := body.get("allowed_token_ids"):
            kept = only[:1]
        complete = len(kept) == len(ids)
        self._salt = str(body.get("cache_salt", ""))
        usage = self._count(request.prompt, kept)
        if request.path.endswith("/responses"):
            finish = answer.finish or ("stop" if complete else "length")
            counts = usage if answer.usage else None
            calls = answer.calls if complete else ()
            return write_response(request.number, answer.text, calls, answer.thinking, counts, finish)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop" if complete else "length"}
        if chat:
            message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "tool_calls": []}
            if answer.thinking is not None:
                message["reasoning"] = answer.thinking
            if answer.calls and complete:
                choice["finish_reason"] = "tool_calls"
                message["tool_calls"] = [
                    {
                        "id": f"call-{request.number}-{n}",
                        "type": "function",
                        "function": {"name": name, "arguments": arguments},
                    }
                    for n, (name, arguments) in enumerate(answer.calls)
                ]
            choice["message"] = message
        else:
            choice |= {"text": self._tokenizer.decode(kept), "token_ids": kept, "logprobs": None}
            if body.get("logprobs") is not None:
                likely = self.likely(request.prompt, usage["prompt_tokens_details"]["cached_tokens"])
                choice["logprobs"] = {
                    "token_logprobs": [likely.get(kept[0], -9.0)],
                    "top_logprobs": [{f"token_id:{token}": value for token, value in likely.items()}],
                }
        if answer.finish is not None:
            choice["finish_reason"] = answer.finish
        content = {
            "id": f"answer-{request.number}",
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [choice],
        }
        return {**content, "usage": usage} if answer.usage else content

    def _count(self, prompt: tuple[int, ...], generated: list[int]) -> dict[str, Any]:
        """The usage, with whole blocks from the cache, never the prompt's last token."""
        cached, salt = 0, self._salt
        while cached + BLOCK < len(prompt) and (salt, prompt[: cached + BLOCK]) in self._blocks:
            cached += BLOCK
        # The last token that was generated was never computed on.
        known = (prompt + tuple(generated))[:-1]
        self._blocks |= {(salt, known[:end]) for end in range(BLOCK, len(known) + 1, BLOCK)}
        self.prompt += len(prompt)
        self.cached += cached
        self.generated += len(generated)
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(generated),
            "total_tokens": len(prompt) + len(generated),
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def sample(schema: dict[str, Any]) -> Any:
    """A value that satisfies a tool's schema."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return {key: sample(value) for key, value in schema["properties"].items()}
        case "array":
            return [sample(schema["items"])]
        case "string":
            return 'a "quoted"\nline'
        case "boolean":
            return True
        case _:
            return 7


def sample_call(request: Request) -> Answer:
    """A valid call of the first tool that is offered."""
    for name, tool in request.tools.items():
        return call(name, **sample(tool["function"]["parameters"]))
    return say("")  # asked whether it is ready


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], engine: ScriptedEngine) -> None:
        self.engine = engine
        self.open: set[Any] = set()
        self.ended = threading.Event()
        self._termination = threading.Lock()
        super().__init__(address, _Handler)

    def end(self) -> None:
        with self._termination:  # its death and the test's end may both come here
            self.ended.set()
            self.shutdown()
            self.server_close()
            for connection in list(self.open):
                _close(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error and not isinstance(error, ConnectionError):  # clients may go away
            self.engine.mistakes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer are written one after the other
    server: _Server

    def parse_request(self) -> bool:
        # A dead engine may still be on its way out.
        alive = super().parse_request() and not self.server.ended.is_set()
        self.close_connection |= not alive
        return alive

    def do_GET(self) -> None:
        engine = self.server.engine
        if self.path == "/v1/models" and self._allowed():
            self._send(200, json.dumps({"object": "list", "data": [engine.listed]}).encode())
        elif self.path in ("/health", "/metrics"):
            self._send(200, engine.metrics.encode() if self.path == "/metrics" else b"")
        elif self.path != "/v1/models":
            self._send(404, b"{}")

    def do_POST(self) -> None:
        engine = self.server.engine
        sent = self.rfile.read(length := int(self.headers["Content-Length"]))
        if len(sent) < length:
            return  # the client has gone
        body = json.loads(sent)
        if not self._allowed():
            return
        answer, content = engine.answer(self.path, body)
        if answer.after is not None:
            answer.after.wait(HANGS_S)
        match answer.fault:
            case "hang":
                self.server.ended.wait()
                self.close_connection = True
            case "die":
                self.server.ended.set()
                self._send(answer.status, content)
                threading.Thread(target=self.server.end).start()
            case "drop":
                self._send(200, content[: len(content) // 2], length=len(content))
                _close(self.connection)
                self.close_connection = True
            case "twice":
                self._send(200, content)
                self._send(200, content)
            case _:
                self._send(answer.status, content, headers=answer.headers)

    def _allowed(self) -> bool:
        key = self.server.engine.api_key
        if key is None or self.headers["Authorization"] == f"Bearer {key}":
            return True
        self._send(401, b'{"error": {"message": "Unauthorized"}}')
        return False

    def _send(
        self, status: int, content: bytes, length: int | None = None, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _close(connection: Any) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(2)
