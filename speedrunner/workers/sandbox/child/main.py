"""Entry point of a sandboxed process; `speedrunner.workers.sandbox.child_process` starts it."""

from __future__ import annotations

import importlib
import json
import sys

from .alarm import Alarm
from .confinement import FilterRefused, die_with, filter_system_calls, limit_resources
from .wire import Wire, encode


def main(role: str, settings: str) -> None:
    """Confine this process, report it, and serve the worker until it closes the pipe.

    Args:
        role: `skills` or `code`: the kind of code to run, with a module here for each.
        settings: JSON with the resource `limits`, and the `parent` to die with (0 for none).
    """
    serve = importlib.import_module(f".run_{role}", __package__).serve
    given = json.loads(settings)
    if given["parent"]:
        die_with(given["parent"])
    sys.dont_write_bytecode = True
    wire, alarm = Wire(), Alarm()
    limit_resources(given["limits"])
    try:
        filter_system_calls()
    except FilterRefused as error:
        wire.send(encode(["confined", str(error)]))
    else:
        wire.send(encode(["confined", None]))
        serve(wire, alarm)
