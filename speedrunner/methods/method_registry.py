"""Methods by name, imported only when they are created."""

from __future__ import annotations

import inspect
from typing import Any

from envs.class_registry import Registry
from speedrunner.methods.method_base import Method, MethodBroke, class_name

METHODS = {
    "asi": "speedrunner.methods.asi:ASI",
    "asi_replay": "speedrunner.methods.asi_replay:ASIReplay",
    "opo": "speedrunner.methods.opo:OPO",
    "react": "speedrunner.methods.react:ReAct",
    "speedrunner": "speedrunner.methods.speedrunner.speedrunner_method:SpeedRunner",
    "voyager": "speedrunner.methods.voyager.voyager_method:Voyager",
}
"""Name -> `package.module:Class`."""


class UnknownMethod(Exception):
    """No method has the given name."""


class InvalidMethodOption(Exception):
    """A method was created with an unknown option, or with a value of the wrong type."""


REGISTRY = Registry("method", METHODS, Method, UnknownMethod, InvalidMethodOption)  # type: ignore[type-abstract]


def make(name: str, **options: Any) -> Method:
    """Create a method.

    Args:
        name: a key of `METHODS`, or the `package.module:Class` of any other `Method`.
        options: arguments of its constructor.

    Raises:
        UnknownMethod: the name is unknown, or refers to nothing importable that is a method.
        InvalidMethodOption: unknown option, or a value that it does not accept.
        MethodBroke: the method is unplayable; see `check_at_once`.
    """
    kind = REGISTRY.find(name)
    made = REGISTRY.call(kind, kind, options, whose=f"method {name}", own=InvalidMethodOption)
    check_at_once(made)
    return made


def check_at_once(method: Method) -> None:
    """Refuse, before any episode, errors that would break a run only after its first episodes.

    Raises:
        MethodBroke: `agent` takes no `training`; `trains` or `replays` is not a boolean; `play` or `sleep` is
            not an `async def`.
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
