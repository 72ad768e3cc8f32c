"""The battery: what it covers, and that each native format can express all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serving.probes.tool_battery import ToolProbe, battery
from serving.tokens.formats import ToolFormat
from serving.tokens.grammar import Part, one_of
from tests.grammar_walks import avoids
from tests.serving.conftest import Served

PROBES = {probe.kind: probe for probe in battery()}


def grammar(tool_format: ToolFormat, probe: ToolProbe, string_tokens: int) -> Part:
    return one_of(*(tool_format.call(tool, string_tokens) for tool in probe.tools))


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
