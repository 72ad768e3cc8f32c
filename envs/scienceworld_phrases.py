"""ScienceWorld's 25 primitives (paper, Appendix B): each function says its call in the parser's words.

Signatures and docstrings are the primitives' own, as the actor sees them.
"""

from __future__ import annotations

from collections.abc import Callable


def go(location: str) -> str:
    """Walk to a neighbouring location, through an open door."""
    return f"go to {location}"


def look_around() -> str:
    """Describe the location that you are in."""
    return "look around"


def look_at(obj: str) -> str:
    """Describe an object in detail."""
    return f"look at {obj}"


def look_in(obj: str) -> str:
    """Describe what is inside a container."""
    return f"look in {obj}"


def pick_up(obj: str) -> str:
    """Move an object into your inventory."""
    return f"pick up {obj}"


def put_down(obj: str) -> str:
    """Put an object from your inventory down where you are."""
    return f"put down {obj}"


def move(obj: str, target: str) -> str:
    """Move an object into or onto another: a container, a table, a device."""
    return f"move {obj} to {target}"


def pour(obj: str, target: str) -> str:
    """Pour a liquid, or what a container holds, into another container."""
    return f"pour {obj} into {target}"


def dunk(obj: str, target: str) -> str:
    """Dunk a container into a liquid, which fills it."""
    return f"dunk {obj} into {target}"


def open(obj: str) -> str:
    """Open a door or a container."""
    return f"open {obj}"


def close(obj: str) -> str:
    """Close a door or a container."""
    return f"close {obj}"


def activate(obj: str) -> str:
    """Turn a device on."""
    return f"activate {obj}"


def deactivate(obj: str) -> str:
    """Turn a device off."""
    return f"deactivate {obj}"


def connect(obj_a: str, obj_b: str) -> str:
    """Connect two electrical terminals, such as "battery anode" and "red wire terminal 1"."""
    return f"connect {obj_a} to {obj_b}"


def disconnect(obj: str) -> str:
    """Undo all electrical connections of an object."""
    return f"disconnect {obj}"


def mix(obj: str) -> str:
    """Mix what a container holds."""
    return f"mix {obj}"


def focus_on(obj: str) -> str:
    """Declare that an object is the one that the task asks for. Do it where the task says so."""
    return f"focus on {obj}"


def read(obj: str) -> str:
    """Read a book, a note or a recipe."""
    return f"read {obj}"


def use(obj: str, target: str = "") -> str:
    """Use an object, as a rule on another: a thermometer on a liquid, an axe on a tree."""
    return f"use {obj} on {target}" if target else f"use {obj}"


def inventory() -> str:
    """List what you carry."""
    return "inventory"


def task_description() -> str:
    """Repeat the task."""
    return "task"


def eat(obj: str) -> str:
    """Eat something."""
    return f"eat {obj}"


def flush(obj: str) -> str:
    """Flush a toilet."""
    return f"flush {obj}"


def wait() -> str:
    """Let time pass for one step."""
    return "wait1"


def disambiguate(option: int) -> str:
    """Answer an "Ambiguous request" with the number of the option that you meant."""
    return str(option)


PHRASES: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        go,
        look_around,
        look_at,
        look_in,
        pick_up,
        put_down,
        move,
        pour,
        dunk,
        open,
        close,
        activate,
        deactivate,
        connect,
        disconnect,
        mix,
        focus_on,
        read,
        use,
        inventory,
        task_description,
        eat,
        flush,
        wait,
        disambiguate,
    )
}
"""Name of a primitive -> its function, in the paper's order."""
