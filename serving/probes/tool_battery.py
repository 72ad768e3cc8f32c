"""A battery of probes that together ask for every kind of tool call, and the engine's answers to them.

Each probe is a short message that asks for one call, with the tools that it offers. However the model reads
the message, its answer must be one call of an offered tool, with arguments that the tool's schema allows.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from serving.apis.completions import TokenConversation
from serving.errors import ContextOverflow, RequestRefused, TruncatedCall
from serving.model import Model
from serving.model_config import Role, Roles
from serving.tokens.tools import ToolSpec
from serving.usage import Usage

MANY_TOOLS = 60

CODE_TOKENS = 1024
"""Bound of a string that must have room for 2 kB of code: tokenizers need one token for about three bytes of
it."""

LABELS = {"role": "probe"}
SYSTEM = "You answer every message with one tool call."


@dataclass(frozen=True)
class ToolProbe:
    """One probe.

    Attributes:
        kind: what it tests, in a word or two.
        message: the message to the model.
        tools: the tools that it offers.
        string_tokens: tokens that its strings need; 0 if any number will do.
    """

    kind: str
    message: str
    tools: tuple[ToolSpec, ...]
    string_tokens: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation's first messages."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.message}]


Validity = Literal["valid", "invalid", "truncated"]

Direction = Literal["left", "right", 'into the "old" mill', "über die Brücke", 180]


class Point(TypedDict):
    """A place."""

    x: int
    y: float


class Route(TypedDict):
    """Places in a row."""

    name: str
    points: list[Point]
    pace: NotRequired[Literal["walk", "run"]]


@functools.cache
def battery() -> tuple[ToolProbe, ...]:
    """Return twelve probes, one of each kind; the last offers 60 tools."""
    wait = _tool("wait", "Do nothing for a while.")
    say = _tool("say", "Say something, word for word.", text=str)
    run = _tool("run", "Run a Python program.", code=str)
    turn = _tool("turn", "Turn around.", direction=Direction)
    count = _tool("count", "Note a whole number.", number=int)
    weigh = _tool("weigh", "Note a weight.", kilograms=float)
    switch = _tool("switch", "Switch the lamp.", on=bool, blinking=bool)
    optional = {"limit": (int, 10), "order": (Literal["newest", "oldest"], "newest"), "exact": (bool, False)}
    search = _tool("search", "Search the notes.", query=str, **optional)
    plan = _tool(
        "plan",
        "Keep a plan of routes.",
        routes=list[Route],
        start=Point,
        grid=list[list[int]],
        tags=list[str],
    )
    plan = msgspec.structs.replace(plan, parameters=_shorten_lists(plan.parameters))
    kinds = itertools.cycle((say, turn, count, weigh, switch, search, plan, wait))
    many = tuple(
        msgspec.structs.replace(tool, name=f"{tool.name}_{number:02}")
        for number, tool in zip(range(MANY_TOOLS), kinds, strict=False)
    )
    return (
        ToolProbe("no argument", "Wait.", (wait,)),
        ToolProbe("quotes", """Say: "Don't," she wrote, "type 'C:\\new' or \\"\\" there.\"""", (say, wait)),
        ToolProbe("newlines", "Say a poem of four lines,\n\n\tthe second one indented.", (say, wait)),
        ToolProbe("unicode", "Say: Grüße, 世界! naïve 🎲 Ω — ¿qué?", (say, wait)),
        ToolProbe(
            "2 kB of code",
            "Write a Python program of about sixty lines that plays tic-tac-toe against itself, and run it.",
            (run, wait),
            CODE_TOKENS,
        ),
        ToolProbe("enum", "Turn into the old mill.", (turn,)),
        ToolProbe("integer", "Note the number minus seventeen thousand and four.", (count,)),
        ToolProbe("float", "Note a weight of three and a half grams.", (weigh,)),
        ToolProbe("boolean", "Switch the lamp on; it must not blink.", (switch,)),
        ToolProbe("optional", "Search for red doors and show me the five oldest.", (search,)),
        ToolProbe("nested", "Plan two routes of three points each, on a grid of two by two.", (plan,)),
        ToolProbe(f"{MANY_TOOLS} tools", f"Turn left with {many[-3].name}, or wait.", many),
    )


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one probe.

    Attributes:
        validity: `truncated` if the answer reached `max_tokens` or the end of the context.
        problem: why it is not valid.
        is_empty: whether the model ended its answer at once, or inside its thought.
        token_ids: token ids that were generated (completions API).
    """

    probe: ToolProbe
    validity: Validity = "valid"
    problem: str | None = None
    is_empty: bool = False
    usage: Usage = Usage()
    token_ids: list[int] = []


async def answer_probe(model: Model, role: Role, probe: ToolProbe) -> ProbeAnswer:
    """Send a probe with a role's budgets. Raises `ServingError` if the engine failed; on the chat API also if
    it refuses the probe."""
    # Hosted models have their own rules for `strict`.
    built_in = model.model_config.api != "completions" and not model.model_config.hosted
    tools = [msgspec.structs.replace(tool, strict=built_in) for tool in probe.tools]
    talk = model.with_roles(Roles(role, role)).converse("actor", probe.messages, tools, LABELS)
    try:
        answer = await talk.ask()
    except ContextOverflow as error:
        return ProbeAnswer(probe=probe, validity="truncated", problem=str(error))
    except RequestRefused as error:
        if not isinstance(talk, TokenConversation):
            raise
        return ProbeAnswer(probe=probe, validity="invalid", problem=str(error))
    finally:
        talk.close()
    if answer.overflows:
        return ProbeAnswer(probe=probe, validity="truncated", problem=str(answer.problem))
    probe_answer = ProbeAnswer(probe=probe, usage=answer.usage, token_ids=answer.token_ids)
    if answer.problem is None:
        return probe_answer
    if isinstance(answer.problem, TruncatedCall):
        return msgspec.structs.replace(probe_answer, validity="truncated", problem=str(answer.problem))
    is_empty, problem = not answer.text, str(answer.problem)
    return msgspec.structs.replace(probe_answer, validity="invalid", problem=problem, is_empty=is_empty)


def _shorten_lists(schema: Any) -> Any:
    """Return a schema with at most three items in each list: 32 in 32 take thousands of tokens."""
    if not isinstance(schema, dict):
        return schema
    short = {key: _shorten_lists(value) for key, value in schema.items()}
    return short | {"maxItems": 3} if schema.get("type") == "array" else short


def _tool(name: str, doc: str, **types: Any) -> ToolSpec:
    """Return a tool with parameters of these types; a pair is a type and a default."""
    parameters = []
    for parameter, given in types.items():
        annotation, default = given if isinstance(given, tuple) else (given, Parameter.empty)
        kind = Parameter.KEYWORD_ONLY
        parameters.append(Parameter(parameter, kind, annotation=annotation, default=default))
    return ToolSpec.from_signature(f"probe_{name}", Signature(parameters), doc)
