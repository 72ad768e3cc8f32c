"""Which signatures become tools, and which arguments a tool accepts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NotRequired, Required

import pytest
from typing_extensions import TypedDict

from serving.errors import InvalidTool
from serving.tokens.tools import ToolSpec
from tests.golden_tables import Golden, table


class Point(TypedDict):
    """A cell."""

    x: int
    y: NotRequired[int]


class Walk(TypedDict):
    start: Point
    cells: list[Point]


class Tree(TypedDict):
    children: list[Tree]


class Partly(TypedDict, total=False):
    x: Required[int]
    y: int


class Lost(TypedDict):
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Place:
    x: int


def spec(function: Callable[..., Any]) -> ToolSpec:
    signature = inspect.signature(function, eval_str=True)
    return ToolSpec.from_signature("tool", signature, "What it does.")


def schema(annotation: Any) -> dict[str, Any]:
    parameter = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    tool = ToolSpec.from_signature("tool", inspect.Signature([parameter]), "")
    return tool.parameters["properties"]["x"]


INTEGER = {"type": "integer"}
RECORD = {"type": "object", "additionalProperties": False}
POINT = {
    **RECORD,
    "properties": {"x": INTEGER, "y": INTEGER},
    "required": ["x"],
    "description": "A cell.",
}

ALLOWED = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (Literal["one"], {"enum": ["one"]}),
    (Literal["a", 'say "b"', 3, True], {"enum": ["a", 'say "b"', 3, True]}),
    (list[str], {"type": "array", "items": {"type": "string"}}),
    (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
    (list[Literal["a", "b"]], {"type": "array", "items": {"enum": ["a", "b"]}}),
    (Point, POINT),
    (list[Point], {"type": "array", "items": POINT}),
    (Partly, {**RECORD, "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}),
]


@pytest.mark.parametrize(("annotation", "expected"), ALLOWED)
def test_allowed_types_have_a_plain_schema(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema(annotation) == expected


REFUSED = [
    *(Any, bytes, date, dict, dict[str, int], list, set[int], tuple[int, str], list[tuple[int, ...]], Place),
    *(Tree, Lost, None, int | str, Literal["a", None], Literal[2**63], "Nowhere", [int]),
]


@pytest.mark.parametrize("annotation", REFUSED, ids=str)
def test_other_types_are_refused_with_the_allowed_ones_named(annotation: Any) -> None:
    with pytest.raises(InvalidTool, match=r"^tool\.x.*: .*(allowed|cannot be read)") as caught:
        schema(annotation)
    assert "\n" not in str(caught.value)


def test_parameters_need_annotations_and_names_to_be_given_by() -> None:
    def untyped(a): ...  # type: ignore[no-untyped-def]
    def positional(a: int, /): ...  # type: ignore[no-untyped-def]
    def many(*a: int): ...  # type: ignore[no-untyped-def]
    def named(**a: int): ...  # type: ignore[no-untyped-def]
    def hidden(_a: int): ...  # type: ignore[no-untyped-def]

    with pytest.raises(InvalidTool, match=r"^tool\.a: it has no type; allowed are str"):
        spec(untyped)
    for function in (positional, many, named, hidden):
        with pytest.raises(InvalidTool, match=r"^tool: parameter .* cannot be given by name"):
            spec(function)


def test_parameters_keep_their_order_and_those_with_a_default_may_be_left_out() -> None:
    def tool(goal: str, json: bool, *, steps: int = 3, walk: Walk, mode: Literal["a"] = "a") -> None: ...

    parameters = spec(tool).parameters
    assert list(parameters["properties"]) == ["goal", "json", "steps", "walk", "mode"]
    assert parameters["required"] == ["goal", "json", "walk"]
    assert parameters["properties"]["steps"] == {"type": "integer", "default": 3}
    assert parameters["properties"]["walk"]["properties"]["start"] == POINT
    assert parameters["additionalProperties"] is False


def checked(
    text: str,
    count: int,
    share: float,
    near: bool,
    mode: Literal["a", 1],
    names: list[list[str]],
    walk: Walk,
    extra: int = 0,
) -> None: ...


GOOD: dict[str, Any] = {
    "text": "",
    "count": -1,
    "share": 0.5,
    "near": False,
    "mode": "a",
    "names": [[], ["x", "y"]],
    "walk": {"start": {"x": 1}, "cells": [{"x": 1, "y": 2}]},
}


def test_arguments_that_fit_have_no_problem() -> None:
    tool = spec(checked)
    assert tool.problem_with(GOOD) is None
    assert tool.problem_with({**GOOD, "extra": 1}) is None
    assert tool.problem_with({**GOOD, "share": 2}) is None
    assert tool.problem_with({**GOOD, "mode": 1}) is None


PROBLEMS: list[dict[str, Any]] = [
    *({"text": 3}, {"text": None}, {"count": True}, {"count": 1.0}, {"count": "1"}, {"share": True}),
    *({"near": 1}, {"near": "true"}, {"mode": "b"}, {"mode": True}, {"mode": []}),
    *({"names": "x"}, {"names": [["x"], [1]]}, {"walk": []}, {"walk": {"cells": []}}),
    *({"walk": {"start": {"x": 1}, "cells": [{"x": 1, "z": 1}]}}, {"other": 1}),
]


def test_arguments_that_do_not_fit_are_named_with_their_place(golden: Golden) -> None:
    tool = spec(checked)
    found = [(change, tool.problem_with({**GOOD, **change}) or "none") for change in PROBLEMS]
    golden("tool_calls/invalid_arguments.txt", table(found))


@pytest.mark.slow  # Outlines compiles the grammars of web addresses when it is imported
def test_outlines_reads_the_same_in_the_schema() -> None:
    """A second opinion: what its compiled schema matches is what we take for valid."""
    import outlines

    valid = outlines.json_schema(spec(checked).parameters)
    for change, fits in [({}, True), ({"extra": 1}, True), *((change, False) for change in PROBLEMS)]:
        assert valid.matches(json.dumps({**GOOD, **change})) == fits, change


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (list[list[list[list[list[int]]]]], "t.a: its type is nested more than 4 levels deep"),
        (TypedDict("Wide", {f"f{n}": int for n in range(100)}), "t: its parameters hold more than 50 types"),
    ],
)
def test_types_that_would_make_a_huge_grammar_are_refused(annotation: object, text: str) -> None:
    parameter = inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    with pytest.raises(InvalidTool, match=f"^{text}$"):
        ToolSpec.from_signature("t", inspect.Signature([parameter]), "")
