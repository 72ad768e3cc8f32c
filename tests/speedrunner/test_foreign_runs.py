"""A run directory from someone else is data: no command that reads one imports, executes or connects to what
it names, isolates less because of it, or takes more memory or time than it may."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from speedrunner.cli.main import app
from tests.bounded_commands import Commands, Ended
from tests.foreign_runs import ATTACKS, SECRET, VALUE, Lure
from tests.speedrunner.statistics.small_runs import learnt

NO_SERVER = "serving.url=unix:/nowhere/engine.sock"

READERS: dict[str, Callable[[str, str, str], list[str]]] = {
    "show": lambda run, folder, out: ["show", run, "train/0"],
    "show, a sleep": lambda run, folder, out: ["show", run, "sleep/1"],
    "view": lambda run, folder, out: ["view", folder, "--static", f"{out}/view"],
    "report": lambda run, folder, out: ["report", folder, "--out", f"{out}/r.html", "--figures", f"{out}/f"],
    "tables": lambda run, folder, out: ["tables", folder, "--out", f"{out}/tables"],
    "compare": lambda run, folder, out: ["compare", run, f"{folder}/good"],
    "plot": lambda run, folder, out: ["plot", run],
    "cost": lambda run, folder, out: ["cost", run],
    "status": lambda run, folder, out: ["status", folder],
    "verify": lambda run, folder, out: ["verify", run],
    "export": lambda run, folder, out: ["export", folder, "--to", "dataset", "--out", f"{out}/data"],
    "export, logs": lambda run, folder, out: ["export", folder, "--to", "inspect", "--out", f"{out}/logs"],
    "forecast": lambda run, folder, out: [
        "forecast", "experiment=demo", "--from", folder, "--dir", f"{out}/planned",
    ],
    "library show": lambda run, folder, out: ["library", "show", run],
    "library diff": lambda run, folder, out: ["library", "diff", f"{run}:1", f"{folder}/good:2"],
    "library graph": lambda run, folder, out: ["library", "graph", run],
    "library stats": lambda run, folder, out: ["library", "stats", run],
    "library blame": lambda run, folder, out: ["library", "blame", run],
    "study cache": lambda run, folder, out: ["study", "cache", run, NO_SERVER],
    "eval": lambda run, folder, out: ["eval", run, NO_SERVER, f"run.dir={out}/eval"],
    "run": lambda run, folder, out: ["run", f"run.start_from={run}", NO_SERVER, f"run.dir={out}/run"],
    "run, again": lambda run, folder, out: ["run", "experiment=demo", f"run.dir={run}", "--dry-run"],
    "episode": lambda run, folder, out: ["episode", f"run.start_from={run}", NO_SERVER],
    "sweep": lambda run, folder, out: ["sweep", f"{out}/runs.yaml", f"--dir={folder}", "--dry-run"],
    "submit": lambda run, folder, out: [
        "submit", f"{out}/runs.yaml", f"--dir={folder}", "cluster=cpu", "--dry-run",
    ],
}  # fmt: skip
"""Every command that reads runs, with one of them, the folder that it is in, and one for what is written."""

NO_READERS = {
    *("play", "version", "init", "list", "prepare", "doctor", "serve", "follow"),
    *("library check", "library try", "envs check", "methods check", "probe cache", "probe tools"),
    *("bench sandbox", "bench envs", "bench hosts", "bench cache", "bench rollout", "bench accounts"),
}
"""Commands that read no run."""

OF_FOLDERS = ("view", "report", "tables", "status", "export", "export, logs")
"""Those that read all runs of a folder."""


def test_every_command_is_known_to_read_runs_or_not() -> None:
    group = typer.main.get_command(app)

    def names(command: object, words: str = "") -> Iterator[str]:
        below = getattr(command, "commands", None)
        if below is None:
            yield words.strip()
        else:
            for name, each in below.items():
                yield from names(each, f"{words} {name}")

    assert set(names(group)) == {name.partition(",")[0] for name in READERS} | NO_READERS


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    os.environ[SECRET] = VALUE
    try:
        with Commands() as found:
            yield found
    finally:
        del os.environ[SECRET]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learnt(tmp_path_factory.mktemp("sound") / "run").path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.setblocking(False)
        yield found


@pytest.fixture
def lure(tmp_path: Path, listener: socket.socket) -> Lure:
    found = Lure(tmp_path / "theirs", tmp_path / "executed", f"127.0.0.1:{listener.getsockname()[1]}")
    found.lay_out()
    return found


def laid(sound: Path, folder: Path, attack: str, lure: Lure) -> Path:
    """A folder with the sound run as `good` and the attacked one as `bad`."""
    place = folder / "runs"
    for name in ("bad", "good"):
        shutil.copytree(sound, place / name)
    ATTACKS[attack](place / "bad", lure)
    return place


def is_connected(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def problem(attack: str, ended: Ended) -> str | None:
    """What is wrong with how a command ended."""
    if ended.status not in (0, 1):
        return f"ended with {ended.status}: {ended.err[-500:]}"
    if "Traceback" in ended.err:
        return ended.err[-500:]
    if VALUE in ended.out + ended.err:
        return "told the secret"
    if ended.status and not ended.out and ended.err.count("error: ") != 1:
        return f"no single line: {ended.err[-500:]}"
    return None


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_is_led_astray_by_a_run_directory(
    attack: str, sound: Path, commands: Commands, tmp_path: Path, lure: Lure, listener: socket.socket
) -> None:
    folder = laid(sound, tmp_path, attack, lure)
    found: dict[str, str | None] = {}
    for name, words in READERS.items():
        out = tmp_path / "out" / name.replace(" ", "-")
        out.mkdir(parents=True)
        (out / "runs.yaml").write_text(f"- {{env: babyai, model: tiny-random, run.dir: '{folder}/bad'}}\n")
        ended = commands.run(lure.folder, *words(str(folder / "bad"), str(folder), str(out)))
        found[name] = problem(attack, ended)
        if lure.mark.exists():
            found[name] = "executed what the run names"
            lure.mark.unlink()
        elif is_connected(listener):
            found[name] = "connected to what the run names"
        elif (
            name in OF_FOLDERS
            and "good"
            not in ended.out
            + "".join(
                file.read_text(errors="replace")
                for file in out.rglob("*")
                if file.suffix in (".html", ".csv")
            )
            and not list((out / "data").rglob("*.parquet")) + list((out / "logs").glob("good*"))
        ):
            found[name] = f"hides the other run: {ended.out[-300:]} {ended.err[-300:]}"
    assert {name: what for name, what in found.items() if what} == {}
