"""`speedrunner methods check`: does a method keep to what `speedrunner.methods.Method` promises?"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from speedrunner.cli.command import end_report, show_finding
from speedrunner.config.compose import GROUPS
from speedrunner.findings import failure, ok, report, warning

OPTIONS = "The method's; env=NAME and env.OPTION=VALUE choose what it plays."

app = typer.Typer(help="Look at methods, your own among them.", no_args_is_help=True)


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Such as react, or package.module:Class.", show_default=False),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTION=VALUE]...", help=OPTIONS, show_default=False),
    ] = None,
) -> None:
    """Play a small run of a method with made-up answers, without a model; print each promise that it breaks.

    The exit status is 1 when there is one.

    Example: speedrunner methods check speedrunner env=crafter
    """
    from speedrunner.runs.method_check import check_method, inner_imports

    settings = [
        each if each.partition("=")[0].partition(".")[0] in GROUPS else f"method.{each}"
        for each in options or []
    ]
    with TemporaryDirectory() as folder:
        found = [failure(name, text) for text in check_method([f"method={name}", *settings], Path(folder))]
    conforms = "conforms: a small run with made-up answers, its end again in another process"
    found = found or [ok(name, conforms)]
    if names := inner_imports(name):
        remedy = f"from speedrunner.methods import {', '.join(names)}"
        found.append(warning(name, "it imports from inner modules, which may change", remedy))
    for each in found:
        show_finding(each)
    end_report(report(name, found), as_json=False)
