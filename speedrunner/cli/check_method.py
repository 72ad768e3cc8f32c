"""`speedrunner check method`: check that a method fulfils the contract of `speedrunner.methods.Method`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from speedrunner.cli.command import class_name, class_options
from speedrunner.cli.output import end_report, say_finding
from speedrunner.config.compose import GROUPS
from speedrunner.config.findings import failure, ok, report, warning
from speedrunner.runs.method_check import check_method, inner_imports

OPTIONS = "Its options. env=NAME and env.OPTION=VALUE choose the environment."


def check(
    name: Annotated[str, class_name("react")],
    options: Annotated[list[str] | None, class_options(OPTIONS)] = None,
) -> None:
    """Play a small run with fake answers and print each broken rule.

    No model is needed. Exit status 1: a rule is broken.

    Example: speedrunner check method speedrunner env=crafter
    """
    settings = [
        each if each.partition("=")[0].partition(".")[0] in GROUPS else f"method.{each}"
        for each in options or []
    ]
    with TemporaryDirectory() as folder:
        found = [failure(name, text) for text in check_method([f"method={name}", *settings], Path(folder))]
    conforms = "conforms: a small run with fake answers, and its end repeated in another process"
    found = found or [ok(name, conforms)]
    if names := inner_imports(name):
        remedy = f"from speedrunner.methods import {', '.join(names)}"
        found.append(warning(name, "it imports from inner modules, which may change", remedy))
    for each in found:
        say_finding(each)
    end_report(report(name, found))
