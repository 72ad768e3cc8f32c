"""Checks of command lines with the installed engine's own parser; no server is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from serving.errors import ServerFailed

PARSER_S = 180.0
"""Longest wait for the parser. It takes 10 s on two cores, nearly all of it for imports."""

_PARSER = """
import gc
gc.disable()  # it would search millions of imported objects, again and again, for a quarter of the time
import contextlib, io, json, os, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
problems = {}
for name, arguments in json.load(sys.stdin).items():
    # The parser takes an unambiguous beginning for the whole flag; the model configs shall not rely on that.
    known = parser._option_string_actions
    unknown = [f"unknown flag {each}" for each in arguments if each.startswith("--") and each not in known]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parser.parse_args(arguments)
    except SystemExit:
        unknown.append(told.getvalue().strip().splitlines()[-1])
    if unknown:
        problems[name] = unknown
print(json.dumps(problems), flush=True)
os._exit(0)  # without taking all those modules down
"""


def flag_problems(arguments: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return what is wrong with the arguments of vLLM's API server, by the name of each command line.

    Raises:
        ServerFailed: the engine's parser cannot be run.
    """
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    # Without stored bytecode, each call would compile thousands of modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PARSER],
            input=json.dumps(dict(arguments)),
            capture_output=True,
            text=True,
            check=True,
            timeout=PARSER_S,
            env=environment,
        )
        problems: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"vLLM was not imported within {PARSER_S:g} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or f"exit status {error.returncode}").splitlines()[-1]
        raise ServerFailed(f"vLLM cannot be imported: {last}") from None
    return problems
