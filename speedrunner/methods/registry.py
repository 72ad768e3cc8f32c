"""Methods by name, imported only when they are made."""

from __future__ import annotations

from typing import Any

from speedrunner.methods.at_once import check_at_once
from speedrunner.methods.base import Method
from typed.classes import Registry

METHODS = {
    "asi": "speedrunner.methods.asi:ASI",
    "asi_replay": "speedrunner.methods.asi_replay:ASIReplay",
    "opo": "speedrunner.methods.opo:OPO",
    "react": "speedrunner.methods.react:ReAct",
    "speedrunner": "speedrunner.methods.speedrunner.method:SpeedRunner",
    "voyager": "speedrunner.methods.voyager.method:Voyager",
}
"""Name -> `package.module:Class`."""


class UnknownMethod(Exception):
    """No method goes by the name that was given."""


class InvalidMethodOption(Exception):
    """A method was made with an option it does not have, or with a value of the wrong type."""


REGISTRY = Registry("method", METHODS, Method, UnknownMethod, InvalidMethodOption)  # type: ignore[type-abstract]


def make(name: str, **options: Any) -> Method:
    """Make a method.

    Args:
        name: a key of `METHODS`, or the `package.module:Class` of any other `Method`.
        options: its constructor's.

    Raises:
        UnknownMethod: no such name, or what it names is no importable method.
        InvalidMethodOption: no such option, or a value it does not take.
        MethodBroke: it cannot be played by; see `check_at_once`.
    """
    kind = REGISTRY.find(name)
    made = REGISTRY.call(kind, kind, options, whose=f"method {name}", own=InvalidMethodOption)
    check_at_once(made)
    return made
