"""Methods by name, imported only when they are created."""

from __future__ import annotations

from typing import Any

from envs.class_registry import Registry
from speedrunner.methods.method_base import Method

METHODS = {
    "ace": "speedrunner.methods.ace:ACE",
    "asi": "speedrunner.methods.asi:ASI",
    "asi_replay": "speedrunner.methods.asi:ASIReplay",
    "opo": "speedrunner.methods.opo:OPO",
    "prose": "speedrunner.methods.prose:Prose",
    "react": "speedrunner.methods.react:ReAct",
    "speedrunner": "speedrunner.methods.speedrunner.speedrunner_method:SpeedRunner",
    "voyager": "speedrunner.methods.voyager.voyager_method:Voyager",
}
"""Name -> `package.module:Class`."""


class InvalidMethod(Exception):
    """No method has the given name, or it does not accept the given options."""


REGISTRY = Registry("method", METHODS, Method, InvalidMethod, InvalidMethod)  # type: ignore[type-abstract]


def make(name: str, **options: Any) -> Method:
    """Create a method.

    Args:
        name: a key of `METHODS`, or the `package.module:Class` of any other `Method`.
        options: arguments of its constructor.

    Raises `InvalidMethod`: the name refers to nothing importable that is a method; it has no such option, or
    does not accept a value.
    """
    kind = REGISTRY.find(name)
    return REGISTRY.call(kind, kind, options, owner=f"method {name}", own=InvalidMethod)
