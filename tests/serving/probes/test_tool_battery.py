"""The battery: each native format can express its longest argument."""

from __future__ import annotations

from serving.probes.tool_battery import battery
from serving.tokens.grammar import one_of
from tests.serving.conftest import Served

CODE = '''def best(board: dict[str, list[int]], depth: int = 3) -> tuple[int, str]:
    """Say "which" move\tis best; — naïvely."""
    if not board or depth == 0:
        return 0, 'none \\\\ "at all"'
    return max((sum(row), name) for name, row in board.items() if row[0] <= depth != 7)

'''


def test_two_kilobytes_of_code_may_be_written(served: Served) -> None:
    (probe,) = (probe for probe in battery() if probe.kind == "2 kB of code")
    code = (CODE * 8)[:2048]
    text = served.rendered("probe_run", {"code": code})
    ids = [*served.tokenizer.framed(text), served.walks.end]
    grammar = one_of(*(served.format.call(tool, probe.string_tokens) for tool in probe.tools))
    matcher = served.walks._matcher(grammar)
    assert all(map(matcher.accept_token, ids))
    assert matcher.is_terminated()
    found = served.format.parse(text, {tool.name: tool for tool in probe.tools})
    assert found.arguments == {"code": code}
