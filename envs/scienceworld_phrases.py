"""ScienceWorld's 25 primitives (paper, Appendix B), each with its call in the parser's words.

Follows scienceworld 1.2.3 (allenai/ScienceWorld), `scienceworld.jar`: the phrases that the classes
`scienceworld.actions.Action*` accept.
"""

from __future__ import annotations

import inspect
import string
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrase:
    """The parser's words for a primitive.

    Attributes:
        words: the words, with the arguments in order as `{name}`.
        doc: the primitive's documentation.
        then: words that follow if the argument in them is given.
    """

    words: str
    doc: str
    then: str = ""

    @property
    def signature(self) -> inspect.Signature:
        """The primitive's signature: every argument is text, except the number of an option."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, kind, default=default, annotation=int if name == "option" else str)
            for words, default in ((self.words, inspect.Parameter.empty), (self.then, ""))
            for name in _arguments(words)
        ]
        return inspect.Signature(parameters, return_annotation=str)

    def __call__(self, **arguments: str | int) -> str:
        """Return the primitive's call as the parser reads it."""
        words = self.words + self.then * any(arguments.get(name) for name in _arguments(self.then))
        return words.format(**arguments)


def _arguments(words: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(words) if name is not None]


PHRASES = {
    "go": Phrase("go to {location}", "Walk to a neighbouring location, through an open door."),
    "look_around": Phrase("look around", "Describe the location that you are in."),
    "look_at": Phrase("look at {obj}", "Describe an object in detail."),
    "look_in": Phrase("look in {obj}", "Describe what is inside a container."),
    "pick_up": Phrase("pick up {obj}", "Move an object into your inventory."),
    "put_down": Phrase("put down {obj}", "Put an object from your inventory down where you are."),
    "move": Phrase(
        "move {obj} to {target}", "Move an object into or onto another: a container, a table, a device."
    ),
    "pour": Phrase(
        "pour {obj} into {target}", "Pour a liquid, or what a container holds, into another container."
    ),
    "dunk": Phrase("dunk {obj} into {target}", "Dunk a container into a liquid, which fills it."),
    "open": Phrase("open {obj}", "Open a door or a container."),
    "close": Phrase("close {obj}", "Close a door or a container."),
    "activate": Phrase("activate {obj}", "Turn a device on."),
    "deactivate": Phrase("deactivate {obj}", "Turn a device off."),
    "connect": Phrase("connect {obj_a} to {obj_b}", "Connect two electrical terminals."),
    "disconnect": Phrase("disconnect {obj}", "Undo all electrical connections of an object."),
    "mix": Phrase("mix {obj}", "Mix what a container holds."),
    "focus_on": Phrase(
        "focus on {obj}",
        "Declare that an object is the one that the task asks for.",
    ),
    "read": Phrase("read {obj}", "Read a book, a note or a recipe."),
    "use": Phrase(
        "use {obj}",
        "Use an object, by itself or on another.",
        " on {target}",
    ),
    "inventory": Phrase("inventory", "List what you carry."),
    "task_description": Phrase("task", "Repeat the task."),
    "eat": Phrase("eat {obj}", "Eat something."),
    "flush": Phrase("flush {obj}", "Flush a toilet."),
    "wait": Phrase("wait1", "Let time pass for one step."),
    "disambiguate": Phrase(
        "{option}", 'Answer an "Ambiguous request" with the number of the option that you meant.'
    ),
}
"""Name of a primitive -> its phrase, in the paper's order."""
