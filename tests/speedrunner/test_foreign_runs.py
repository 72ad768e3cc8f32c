"""A run directory from someone else is data: no command that reads one imports, executes or connects to what
it names, isolates less because of it, or takes more memory or time than it may."""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speedrunner.cli.commands import COMMANDS
from speedrunner.cli.reference import leaves
from tests.bounded_commands import Commands, Ended
from tests.foreign_runs import ATTACKS, SECRET, VALUE, Lure
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.results import small_runs

pytestmark = pytest.mark.process

SCRIPT = Path(sys.executable).with_name("speedrunner")

NO_SERVER = "serving.url=unix:/nowhere/engine.sock"

EVALUATE = ("run", "run.rollouts=0")
"""With `run.start_from=RUN`: evaluate a stored policy."""

READERS: dict[str, Callable[[str, str, str], list[str]]] = {
    "show": lambda run, folder, out: ["show", run],
    "show, an episode": lambda run, folder, out: ["show", run, "train/0"],
    "show, a sleep": lambda run, folder, out: ["show", run, "sleep/1"],
    "view": lambda run, folder, out: ["view", folder, "--static", f"{out}/view"],
    "report": lambda run, folder, out: ["report", folder, "--out", f"{out}/report"],
    "compare": lambda run, folder, out: ["compare", run, f"{folder}/good"],
    "compare, alone": lambda run, folder, out: ["compare", run],
    "cost": lambda run, folder, out: ["cost", run],
    "status": lambda run, folder, out: ["status", folder],
    "verify": lambda run, folder, out: ["verify", run],
    "export": lambda run, folder, out: ["export", folder, "--to", "dataset", "--out", f"{out}/data"],
    "export, logs": lambda run, folder, out: ["export", folder, "--to", "inspect", "--out", f"{out}/logs"],
    "export, atif": lambda run, folder, out: ["export", folder, "--to", "atif", "--out", f"{out}/atif"],
    "library show": lambda run, folder, out: ["library", "show", run],
    "library diff": lambda run, folder, out: ["library", "diff", f"{run}:1", f"{folder}/good:1"],
    "library graph": lambda run, folder, out: ["library", "graph", run],
    "library stats": lambda run, folder, out: ["library", "stats", run],
    "library blame": lambda run, folder, out: ["library", "blame", run],
    "library export": lambda run, folder, out: [
        "library", "export", run, "--to", "skills", "--out", f"{out}/skills",
    ],
    "bench replay": lambda run, folder, out: ["bench", "replay", run, NO_SERVER],
    "run, evaluation": lambda run, folder, out: [
        *("run", f"run.start_from={run}", "run.rollouts=0", NO_SERVER, f"run.dir={out}/evaluation"),
    ],
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
    *(
        "init",
        "list",
        "prepare",
        "doctor",
        "serve",
        "library check",
        "library try",
    ),
    "import",
    *("bench probe cache", "bench probe tools", "bench cache", "bench rollout", "bench gpu"),
}
"""Commands that read no run."""

OF_FOLDERS = {
    "view": r"^\d+ pages",
    "report": r"(?m)^the report was written to",
    "status": r"(?m)^good +stopped",
    "export": r"^[2-4] conversations in",
    "export, logs": r"^[2-4] logs",
    "export, atif": r"^[1-9]\d* trajectories of [12] runs",
}
"""Those that read all runs of a folder, with what they print where the sound one is among them."""


def test_every_command_is_known_to_read_runs_or_not() -> None:
    table = [each for commands in COMMANDS.values() for each in commands]
    names = {words.strip() for words, _ in leaves(table, "")}
    assert names == {name.partition(",")[0] for name in READERS} | NO_READERS


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
    folder = tmp_path_factory.mktemp("sound") / "run"
    return small_runs.one_sleep(folder, run={"rollouts": 2, "test_episodes": 1}).path


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
    if "larger than the memory" in ended.out + ended.err:
        return "asked for more memory than it may have"
    if VALUE in ended.out + ended.err:
        return "shows the secret"
    if ended.status and not ended.out and ended.err.count("error: ") != 1:
        return f"no single line: {ended.err[-500:]}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_is_led_astray_by_a_run_directory(
    attack: str,
    sound: Path,
    commands: Commands,
    tmp_path: Path,
    lure: Lure,
    listener: socket.socket,
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
        elif not found[name] and name in OF_FOLDERS and not re.search(OF_FOLDERS[name], ended.out):
            found[name] = f"hides the other run: {ended.out[-300:]} {ended.err[-300:]}"
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("attack", "words", "field"),
    [
        ("environment", ["status", "FOLDER"], "env.name is 'evil:Evil'"),
        ("environment", ["verify", "RUN"], "env.name is 'evil:Evil'"),
        ("environment", ["library", "graph", "RUN"], "env.name is 'evil:Evil'"),
        ("method", [*EVALUATE, "run.start_from=RUN"], "method.name is 'evil:Evil'"),
        ("method", ["bench", "replay", "RUN"], "method.name is 'evil:Evil'"),
        ("model", [*EVALUATE, "run.start_from=RUN", "run.dir=OUT"], "model.name is "),
    ],
)
def test_a_refusal_names_file_and_field_and_how_to_allow_it(
    attack: str, words: list[str], field: str, sound: Path, tmp_path: Path, lure: Lure
) -> None:
    folder = laid(sound, tmp_path, attack, lure)
    places = {"RUN": folder / "bad", "FOLDER": folder, "OUT": tmp_path / "out"}
    given = [re.sub(r"\b[A-Z]+$", lambda found: str(places[found[0]]), word) for word in words]
    done = in_process(*given, cwd=lure.folder)
    refusal = next(line for line in (done.stdout + done.stderr).splitlines() if "trust" in line)
    assert f"{folder}/bad/config.yaml: {field}" in refusal
    assert not lure.mark.exists()
    # What it says to add is what allows it.
    trust = shlex.split(refusal.partition("If you trust it, add ")[2])
    again = in_process(*given, *trust, cwd=lure.folder)
    assert lure.mark.exists(), again


def test_what_the_user_names_in_an_override_needs_no_trust(sound: Path, tmp_path: Path, lure: Lure) -> None:
    run = laid(sound, tmp_path, "environment", lure) / "bad"
    words = f"run.start_from={run}", "env=babyai", NO_SERVER, f"run.dir={tmp_path}/evaluation"
    done = in_process(*EVALUATE, *words, cwd=lure.folder)
    assert "nothing answers at" in complaint(done)
    assert not lure.mark.exists()


def test_suggested_commands_quote_what_a_run_says(sound: Path, tmp_path: Path, lure: Lure) -> None:
    folder, hostile = tmp_path / "runs", f"$(touch {lure.mark}); touch {lure.mark} #"
    shutil.copytree(sound, folder / "run")
    config = folder / "run/config.yaml"
    config.write_text(config.read_text().replace("name: tiny-random", f"name: '{hostile}'"))
    done = in_process("report", str(folder), "--out", str(tmp_path / "out"))
    suggested = [line for line in done.stdout.splitlines() if "speedrunner sweep" in line]
    assert suggested
    for line in suggested:
        assert f"model={hostile}" in shlex.split(line.partition("speedrunner ")[2])
    text = html.unescape((tmp_path / "out" / "report.html").read_text())
    assert f"speedrunner sweep experiment=main 'model={hostile}'" in text
    assert f" model={hostile}" not in text


@pytest.mark.slow
@pytest.mark.parametrize("program", [[sys.executable, "-m", "speedrunner"], [str(SCRIPT)]], ids=["-m", ""])
def test_modules_in_the_current_directory_take_no_library_s_place(
    program: list[str], sound: Path, tmp_path: Path, lure: Lure
) -> None:
    folder = tmp_path / "runs"
    for number in range(8):  # so many that several processes read them
        shutil.copytree(sound, folder / str(number))
    for name in ("yaml", "msgspec", "multiprocessing", "pickle", "pyarrow"):
        shutil.copy(lure.python, folder / f"{name}.py")
    (folder / "matplotlibrc").write_text("text.usetex: True\nbackend: module://yaml\n")
    for words in ("status .", "report .", "export . --to dataset --out data"):
        done = subprocess.run([*program, *words.split()], cwd=folder, capture_output=True, text=True)
        assert (done.returncode, lure.mark.exists()) == (0, False), done.stderr
