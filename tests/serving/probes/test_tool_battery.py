"""The battery: what it covers, and that each native format can express all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from serving.model_config import ModelConfig
from serving.probes.tool_battery import MANY_TOOLS, OpenProbe, ToolProbe, battery
from serving.tokens.formats import ToolFormat
from serving.tokens.grammar import Part, one_of
from serving.tokens.tokenizer import ChatTokenizer
from tests.grammar_walks import avoids
from tests.probe_engines import sample_call
from tests.scripted_runs import scripted_model
from tests.serving.conftest import Served

PROBES = {probe.kind: probe for probe in battery()}


def grammar(tool_format: ToolFormat, probe: ToolProbe, string_tokens: int) -> Part:
    return one_of(*(tool_format.call(tool, string_tokens) for tool in probe.tools))


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all that it holds."""
    yield schema
    for inner in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from schemas(inner)


def test_there_are_twelve_probes_of_different_kinds() -> None:
    assert len(battery()) == len(PROBES) == 12


def test_all_tools_can_be_told_by_their_names() -> None:
    """An engine that knows nothing of a run answers calls of such tools."""
    for probe in battery():
        names = [tool.name for tool in probe.tools]
        assert all(name.startswith("probe_") for name in names)
        assert len(set(names)) == len(names)


def test_every_type_of_argument_occurs_and_both_kinds_of_presence() -> None:
    found = [each for probe in battery() for tool in probe.tools for each in schemas(tool.parameters)]
    assert {each.get("type", "enum") for each in found} == {
        *("string", "integer", "number", "boolean", "array", "object", "enum")
    }
    options = {type(option) for each in found if "enum" in each for option in each["enum"]}
    assert options == {str, int}
    assert any(each["properties"] == {} for each in found if each.get("type") == "object")
    # Optional arguments, and optional members of an object within a list.
    assert PROBES["optional"].tools[0].parameters["required"] == ["query"]
    route = PROBES["nested"].tools[0].parameters["properties"]["routes"]["items"]
    assert set(route["properties"]) - set(route["required"]) == {"pace"}


@pytest.mark.parametrize(
    ("kind", "signs"), [("quotes", "\"'\\"), ("newlines", "\n\t"), ("unicode", "ü世🎲Ω")]
)
def test_messages_about_strings_hold_what_they_ask_for(kind: str, signs: str) -> None:
    assert set(signs) <= set(PROBES[kind].message)
    assert PROBES[kind].tools[0].parameters["properties"] == {"text": {"type": "string"}}


def test_one_probe_offers_sixty_tools() -> None:
    probe = battery()[-1]
    assert len(probe.tools) == MANY_TOOLS == 60
    assert sum(tool.name in probe.message for tool in probe.tools) == 1


CODE = '''def best(board: dict[str, list[int]], depth: int = 3) -> tuple[int, str]:
    """Say "which" move\tis best; — naïvely."""
    if not board or depth == 0:
        return 0, 'none \\\\ "at all"'
    return max((sum(row), name) for name, row in board.items() if row[0] <= depth != 7)

'''


def test_two_kilobytes_of_code_may_be_written(served: Served) -> None:
    probe = PROBES["2 kB of code"]
    code = (CODE * 8)[:2048]
    text = served.rendered("probe_run", {"code": code})
    ids = [*served.tokenizer.framed(text), served.walks.end]
    matcher = served.walks._matcher(grammar(served.format, probe, probe.string_tokens))
    assert all(map(matcher.accept_token, ids))
    assert matcher.is_terminated()
    found = served.format.parse(text, {tool.name: tool for tool in probe.tools})
    assert found.arguments == {"code": code}


@pytest.mark.parametrize("tendency", [None, avoids(b"]", b"}")], ids=["evenly", "towards long lists"])
@pytest.mark.parametrize("kind", PROBES)
def test_whatever_the_grammar_allows_is_a_valid_call(
    served: Served, kind: str, tendency: Callable[[bytes], bool] | None
) -> None:
    probe = PROBES[kind]
    tools = {tool.name: tool for tool in probe.tools}
    for number in range(2):
        text = served.walk(grammar(served.format, probe, string_tokens=8), f"{kind}{number}", tendency)
        call = served.format.parse(text, tools)
        assert tools[call.name].problem_with(call.arguments) is None


async def test_thinking_has_the_budget_of_the_role(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    thinking = msgspec.structs.replace(tiny_model_config.roles.actor, thinking_tokens=21)
    async with scripted_model(sample_call, tiny_model_config, tiny_tokenizer) as scripted:
        await OpenProbe(scripted.model, thinking, battery()[0]).answer()
        tag = scripted.server.requests[0].body["structured_outputs"]["structural_tag"]
        assert '"max_tokens": 21' in tag
        assert scripted.model.model_config is tiny_model_config
