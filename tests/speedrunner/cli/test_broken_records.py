"""A damaged record ends a command with one line that names its file and line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.scripted_runs import complaint, in_process

pytestmark = pytest.mark.process

STORED = Path(__file__).parents[2] / "data/format_3"
TRAINED, ROWS, LEDGER = "trajectories/batch_0000.jsonl", "episodes.jsonl", "requests.jsonl"


def copy_damaged(folder: Path, name: str) -> Path:
    """Return a copy of the stored run; the second line of one file is broken, its length as before."""
    copy = Path(shutil.copytree(STORED, folder / "runs/broken"))
    lines = (copy / name).read_bytes().splitlines(keepends=True)
    damage = b"\x00 and garbage"
    start = len(lines[1]) // 2
    lines[1] = lines[1][:start] + damage + lines[1][start + len(damage) :]
    (copy / name).write_bytes(b"".join(lines))
    return copy


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("show", "RUN"), ROWS),
        (("show", "RUN", "train/1"), TRAINED),
        (("compare", "RUN"), LEDGER),
        (("cost", "RUN"), LEDGER),
        (("cost", "RUN"), "sleeps/0001.json"),
        (("export", "RUN", "--to", "dataset", "--out", "OUT"), TRAINED),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_a_command_names_the_broken_line(arguments: tuple[str, ...], name: str, tmp_path: Path) -> None:
    run = copy_damaged(tmp_path, name)
    places = {"RUN": str(run), "OUT": str(tmp_path / "out")}
    where = run / name if name.endswith(".json") else f"{run / name}, line 2,"
    assert f"{where} is not" in complaint(in_process(*(places.get(each, each) for each in arguments)))
    assert not (tmp_path / "out").exists()


def test_status_notes_the_broken_line(tmp_path: Path) -> None:
    run = copy_damaged(tmp_path, ROWS)
    done = in_process("status", str(run), "--json")
    (found,) = json.loads(done.stdout)["runs"]
    assert (done.returncode, found["state"]) == (1, "damaged")
    assert f"{ROWS}, line 2, is not a valid EpisodeRow" in found["note"]


def test_verify_fails_and_names_the_broken_line(tmp_path: Path) -> None:
    run = copy_damaged(tmp_path, TRAINED)
    done = in_process("verify", str(run), "--json")
    assert done.returncode == 1
    assert f"{TRAINED}, line 2, is not" in done.stdout
