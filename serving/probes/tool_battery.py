"""A battery of probes that together ask for every kind of tool call, and the engine's answers to them.

Each probe is a short message that asks for one call, with the tools that it offers. However the model reads
the message, its answer must be one call of an offered tool, with arguments that the tool's schema allows.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from serving.apis.completions import TokenConversation
from serving.errors import ContextOverflow, RequestRefused, TruncatedCall
from serving.model import Model
from serving.model_config import Role, Roles
from serving.tokens.tools import ToolSpec
from speedrunner.plain.plain_yaml import read_yaml_file

MANY_TOOLS = 60

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


@functools.cache
def battery() -> tuple[ToolProbe, ...]:
    """Return twelve probes, one of each kind; the last offers 60 tools."""
    content = read_yaml_file(Path(__file__).with_name("tool_battery.yaml"))
    tools = {name: ToolSpec(f"probe_{name}", **fields) for name, fields in content["tools"].items()}
    probes = [
        ToolProbe(**{**fields, "tools": tuple(tools[name] for name in fields["tools"])})
        for fields in content["probes"]
    ]
    kinds = itertools.cycle(tools[name] for name in content["many"])
    many = tuple(
        msgspec.structs.replace(tool, name=f"{tool.name}_{number:02}")
        for number, tool in zip(range(MANY_TOOLS), kinds, strict=False)
    )
    probes.append(ToolProbe(f"{MANY_TOOLS} tools", f"Turn left with {many[-3].name}, or wait.", many))
    return tuple(probes)


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one probe.

    Attributes:
        validity: `truncated` if the answer reached `max_tokens` or the end of the context.
        problem: why it is not valid.
        is_empty: whether the model ended its answer at once, or inside its thought.
    """

    probe: ToolProbe
    validity: Validity = "valid"
    problem: str | None = None
    is_empty: bool = False


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
    if answer.problem is None:
        return ProbeAnswer(probe=probe)
    is_cut = answer.overflows or isinstance(answer.problem, TruncatedCall)
    return ProbeAnswer(
        probe=probe,
        validity="truncated" if is_cut else "invalid",
        problem=str(answer.problem),
        is_empty=not is_cut and not answer.text,
    )
