"""Runs whose records are well-formed and contradict each other: each command reads them, or says in a line
why it cannot."""

from __future__ import annotations

import copy
import json
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from speedrunner.cli.app import main
from tests.speedrunner.results import small_runs

SLOW = pytest.mark.slow

VALUES: list[Any] = [
    *(None, True, -1, 0, 10**6, 2**63, 1e308, 0.5, "", "x", "\x1b[2J", "train/0001", "sleep/0009", "7"),
    *([], {}, [{}], {"a": 1}, [None], "\ud800", "nan", "../..", 10**400),
]
"""What takes the place of a value."""

COMMANDS = (
    *(["show", "RUN"], ["show", "RUN", "train/0"], ["show", "RUN", "sleep/1"], ["show", "RUN", "test/2/0"]),
    *(["compare", "RUN"], ["cost", "RUN"], ["compare", "RUN", "GOOD"], ["status", "FOLDER"]),
    *(["library", "show", "RUN"], ["library", "blame", "RUN"], ["library", "stats", "RUN"]),
    *(["library", "graph", "RUN"], ["library", "diff", "RUN:1", "GOOD:1"]),
    *(["report", "FOLDER", "--out", "OUT"],),
    *(["library", "export", "RUN", "--to", "skills", "--out", "OUT"],),
    *(["view", "FOLDER", "--static", "OUT"], ["export", "FOLDER", "--to", "inspect", "--out", "OUT"]),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "run"
    return small_runs.one_sleep(folder, run={"rollouts": 2, "test_episodes": 1}).path


def places(value: Any) -> Iterator[Callable[[Any, Any], None]]:
    """What sets one value within a record, for each of them."""

    def within(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield (*path, key)
            if isinstance(item, dict | list):
                yield from within(item, (*path, key))

    def setter(path: tuple[Any, ...]) -> Callable[[Any, Any], None]:
        def put(record: Any, new: Any) -> None:
            for key in path[:-1]:
                record = record[key]
            record[path[-1]] = new

        return put

    return map(setter, within(value, ()))


def change_one(run: Path, chance: random.Random) -> str:
    """Change one value of one record; returns what was changed."""
    files = sorted(each for each in run.rglob("*.json*") if each.is_file() and each.stat().st_size > 2)
    file = chance.choice([each for each in files if each.read_text().strip() not in ("{}", "[]", "[\n]")])
    text = file.read_text()
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    number = chance.randrange(len(lines))
    record = json.loads(lines[number])
    before = copy.deepcopy(record)
    new = chance.choice(VALUES)
    chance.choice([*places(record)])(record, new)
    lines[number] = json.dumps(record)
    file.write_text("\n".join(lines) + "\n")
    return f"{file.relative_to(run)}, line {number + 1}: {new!r} in {before}"[:2000]


def problem(words: list[str], capsys: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with how a command ends."""
    status: object = 0
    try:
        main(words)
    except SystemExit as end:
        status = end.code
    except Exception:
        return traceback.format_exc()[-1500:]
    said = "".join(capsys.readouterr())
    if status not in (None, 0, 1):
        return f"exit status {status}: {said}"
    return "an escape sequence is printed" if "\x1b[2J" in said else None


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 24))])
def test_no_command_ends_with_a_traceback(
    seed: int, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    for name in ("good", "run"):
        shutil.copytree(sound, tmp_path / "runs" / name)
    run = tmp_path / "runs/run"
    changed = change_one(run, chance)
    given = {"RUN": str(run), "GOOD": str(run.parent / "good"), "FOLDER": str(run.parent)}
    given |= {"RUN:1": f"{run}:1", "GOOD:1": f"{run.parent}/good:1"}
    given |= {"OUT": str(tmp_path / "out"), "OUT.html": str(tmp_path / "out.html")}
    for command in COMMANDS:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert problem([given.get(word, word) for word in command], capsys) is None, (changed, command)
