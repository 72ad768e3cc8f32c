"""Check a method before the first episode."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable

from speedrunner.methods.method_base import Method, MethodBroke, class_name


def check_at_once(method: Method) -> None:
    """Refuse, before any episode, errors that would break a run only after its first episodes.

    Raises:
        MethodBroke: `agent` takes no `training`; `trains` or `replays` is not a boolean; `play` or `sleep` is
            not an `async def`; a `sleep` that will be called has no `return` with a value.
    """
    for name in ("trains", "replays"):
        if not isinstance(value := getattr(method, name, None), bool):
            raise MethodBroke(f"{class_name(method)}: {name} must be True or False, not {value!r:.80}")
    for name in ("play", "sleep"):
        if not inspect.iscoroutinefunction(getattr(method, name)):
            raise MethodBroke(f"{class_name(method)}: {name} must be defined by `async def`")
    parameters = inspect.signature(method.agent).parameters.values()
    if not any(each.name == "training" or each.kind is each.VAR_KEYWORD for each in parameters):
        raise MethodBroke(f"{class_name(method)}: agent must take the keyword `training`")
    if method.trains and _returns_nothing(type(method).sleep):
        raise MethodBroke(
            f"{class_name(method)}: sleep must return a Policy, but has no `return` with a value"
        )


def _returns_nothing(function: Callable[..., object]) -> bool:
    """Return whether a function's source can only return `None`."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False  # unknown
    if not isinstance(definition, ast.AsyncFunctionDef):
        return False
    left: list[ast.AST] = [*definition.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return not isinstance(definition.body[-1], ast.Raise)
