"""TextWorldExpress's primitives, each with its call in the simulator's words.

Follows textworld-express 1.1.0 (cognitiveailab/TextWorldExpress): the valid actions of its games.
"""

from __future__ import annotations

from envs.phrases import Phrase

PHRASES = {
    "look_around": Phrase("look around", "Describe the place where you are."),
    "inventory": Phrase("inventory", "List what you carry."),
    "examine": Phrase("examine {obj}", "Describe an object in detail."),
    "read": Phrase("read {obj}", "Read something that has text."),
    "move": Phrase("move {direction}", "Walk to the neighbouring place in a direction."),
    "open_door": Phrase("open door to {direction}", "Open the door in a direction."),
    "close_door": Phrase("close door to {direction}", "Close the door in a direction."),
    "open": Phrase("open {obj}", "Open a container."),
    "close": Phrase("close {obj}", "Close a container."),
    "take": Phrase("take {obj}", "Move an object into your inventory."),
    "put": Phrase(
        "put {obj} in {target}",
        "Move an object from your inventory into a container, or onto furniture.",
    ),
    "slice": Phrase("slice {obj}", "Slice an object."),
    "dice": Phrase("dice {obj}", "Dice an object."),
    "chop": Phrase("chop {obj}", "Chop an object."),
    "cook": Phrase("cook {obj} in {target}", "Cook an object with an appliance."),
    "prepare_meal": Phrase("prepare meal", "Make a meal of the prepared ingredients."),
    "eat": Phrase("eat {obj}", "Eat something."),
}
"""Name of a primitive -> its phrase."""

LOOKING = ("look_around", "inventory", "examine", "read")
"""Primitives that change nothing."""
