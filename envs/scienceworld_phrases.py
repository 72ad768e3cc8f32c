"""ScienceWorld's 25 primitives (paper, Appendix B), each with its call in the parser's words.

Follows scienceworld 1.2.3 (allenai/ScienceWorld), `scienceworld.jar`: the phrases that the classes
`scienceworld.actions.Action*` accept.
"""

from __future__ import annotations

from envs.phrases import Phrase

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
