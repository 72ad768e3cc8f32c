"""The mutants that measure the tests: each is another program that Python accepts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.mutants import changes, mutants


def test_each_mutant_of_a_module_is_another_program() -> None:
    module = Path("speedrunner/config/slurm.py")
    original = ast.unparse(ast.parse((CHECKOUT / module).read_text()))
    found = list(mutants(module))
    assert found
    for each in found:
        compile(each.source, str(module), "exec")
        assert each.source != original


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", ["a <= b"]),
        ("a + 1", ["a - 1"]),
        ("a and b", ["a or b"]),
        ("not a", ["a"]),
        ("3", ["4", "2"]),
        ("f(a, b)", ["f(b, a)"]),
        ("x if a else y", ["x if not a else y"]),
        ("a", []),
    ],
)
def test_a_node_changes_as_a_small_mistake_would_change_it(before: str, after: list[str]) -> None:
    assert [ast.unparse(each) for each in changes(ast.parse(before, mode="eval").body)] == after
