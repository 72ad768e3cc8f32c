"""The cards in `models/`: the engine takes their flags."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from serving.cards import adapted, list_cards, load_card
from serving.engine.server import VllmServer

SERVED = {card.name: card for card in map(load_card, list_cards()) if not card.hosted}

PARSER = """
import contextlib, io, json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
problems = {}
for name, arguments in json.load(sys.stdin).items():
    # The parser takes an unambiguous beginning for the whole flag; the cards shall not rely on that.
    known = parser._option_string_actions
    unknown = [each for each in arguments if each.startswith("--") and each not in known]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parser.parse_args(arguments)
    except SystemExit:
        unknown.append(told.getvalue().strip().splitlines()[-1])
    if unknown:
        problems[name] = unknown
print(json.dumps(problems))
"""


def flag_problems(arguments: dict[str, list[str]]) -> dict[str, list[str]]:
    """What the pinned engine's own parser says against each command line."""
    done = subprocess.run(
        [sys.executable, "-c", PARSER],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=True,
    )
    problems: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return problems


def test_the_engine_knows_every_flag_of_every_card() -> None:
    lines = {
        name: VllmServer(card, "some/model", Path("unused")).command[3:] + card.arguments()
        for name, card in SERVED.items()
    }
    lines |= {
        f"{name} adapted": adapted(card, 2, "dummy").arguments() for name, card in SERVED.items() if card.gpus
    }
    lines["misspelt"] = ["--enable-prefix-cachin"]
    lines["no number"] = ["--max-num-seqs", "many"]
    lines["no field"] = ["--structured-outputs-config", '{"backnd": "xgrammar"}']
    assert sorted(flag_problems(lines)) == ["misspelt", "no field", "no number"]
