"""A run directory from someone else is data: no command imports, executes or connects to what it names, reads
behind its links, or isolates less because of it. A damaged or absurd file gives one line, no traceback."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from speedrunner.store.records import FORMAT
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.results import small_runs

pytestmark = pytest.mark.process

NO_SERVER = "serving.url=unix:/nowhere/engine.sock"

QUICK = (
    *("show RUN", "show RUN train/0", "show RUN sleep/1", "cost RUN", "status FOLDER", "show RUN library"),
    f"run run.start_from=RUN run.rollouts=0 {NO_SERVER} run.dir=OUT/evaluation",
)
SLOW = (
    *("compare RUN",),
    f"episode run.start_from=RUN {NO_SERVER}",
    *("verify RUN", "export RUN --to skills --out OUT/skills", f"bench replay RUN {NO_SERVER}"),
    "view FOLDER --static OUT/view",
)
"""Commands that read a run, or compare each run with each other."""

TOGETHER = (
    "report FOLDER --out OUT/report",
    *("export FOLDER --to dataset --out OUT/data", "export FOLDER --to inspect --out OUT/logs"),
)
"""Commands that read all runs of a folder."""

SECRET = "plugh-4711"
"""What no command may show: the content of a file of the reader and of an environment variable."""


class Lure:
    """An attacker's files, and an address where the attacker listens.

    Attributes:
        mark: a file that exists as soon as anything of the attacker was executed.
    """

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self.folder, self.mark, self._listener = folder, folder / "executed", listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.python, self.model_config = (folder / f"evil{end}" for end in (".py", ".yaml"))
        (folder / "private").mkdir(parents=True)
        self.python.write_text(f"open({str(self.mark)!r}, 'w').close()\n")
        self.model_config.write_text(
            "name: evil\ntried: never\ncontext: 4096\napi: completions\ntool_format: qwen3_json\n"
            f"path: {folder}/weights\nrecipe: {self.python}\n"
            "prices: {uncached: 0, cached: 0, output: 0}\n"
            "roles: {actor: {string_tokens: 10}, inducer: {string_tokens: 10}}\n"
        )
        index = {"version": 1, "skills": [], "format": FORMAT}
        texts = {"skills.py": f"# {SECRET}", "notes.md": SECRET, "method.json": "{}"}
        for name, text in {**texts, "library.json": json.dumps(index)}.items():
            (folder / "private" / name).write_text(text)

    def caught(self) -> str:
        """Return what a command has done with the attacker's files; empty if nothing."""
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return "executed what the run names" if self.mark.exists() else ""
        return "connected to what the run names"


@pytest.fixture
def lure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lure]:
    monkeypatch.setenv("SPEEDRUNNER_TEST_SECRET", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Lure(tmp_path / "theirs", listener)


def configure(run: Path, /, **sections: dict[str, Any]) -> None:
    content = yaml.safe_load((run / "config.yaml").read_text())
    for section, changes in sections.items():
        content[section] = content.get(section, {}) | changes
    (run / "config.yaml").write_text(yaml.safe_dump(content))


def change_models(run: Path, **changes: Any) -> None:
    content = json.loads((run / "processes.jsonl").read_text().splitlines()[-1])
    content["actor"] |= changes
    (run / "processes.jsonl").write_text(json.dumps(content) + "\n")


def name_server(run: Path, lure: Lure) -> None:
    server = {"api_key_env": "SPEEDRUNNER_TEST_SECRET"}
    change_models(run, base_url=f"http://{lure.address}/v1", path=None, recipe=None, **server)
    configure(run, serving={"url": f"http://{lure.address}/v1", **server})


def read_private_file(run: Path, lure: Lure) -> None:
    """A skill that returns a file of the reader where nothing isolates it."""
    (run / "policies/v0001/skills.py").write_text(
        'import random\n\n\ndef home() -> str:\n    """Go."""\n'
        f"    file = random._os.open({str(lure.folder / 'private/notes.md')!r}, 0)\n"
        "    return random._os.read(file, 100).decode()\n"
    )
    skills = [{"name": "home", "public": True, "created": 1, "edited": 1}]
    index = {"version": 1, "skills": skills, "format": FORMAT}
    (run / "policies/v0001/library.json").write_text(json.dumps(index))
    configure(run, sandbox={"kind": "rlimits"})


def place_links(run: Path, lure: Lure) -> None:
    for name, target in {
        "requests.jsonl": "/dev/zero",
        "tools.jsonl": lure.folder / "private/notes.md",
    }.items():
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)
    (run / "reconciliation.jsonl").unlink(missing_ok=True)
    os.mkfifo(run / "reconciliation.jsonl")
    shutil.rmtree(run / "policies/v0001")
    (run / "policies/v0001").symlink_to(lure.folder / "private")


ATTACKS: dict[str, Callable[[Path, Lure], None]] = {
    "recipe": lambda run, lure: change_models(run, recipe=str(lure.python), path=str(lure.folder)),
    "server": name_server,
    "environment": lambda run, lure: configure(run, env={"name": "evil:Evil"}),
    "method": lambda run, lure: configure(run, method={"name": "evil:Evil"}),
    "model": lambda run, lure: configure(run, model={"name": str(lure.model_config)}),
    "sandbox": read_private_file,
    "links": place_links,
}

HUGE = 2**31
"""Bytes of a sparse file."""

DEEP = 60_000

EPISODES, LEDGER = "trajectories/batch_0000.jsonl", "requests.jsonl"

DAMAGED: dict[str, tuple[str, Callable[[str], str | int]]] = {
    "configuration, deep": ("config.yaml", lambda text: "a: " + "[" * DEEP + "]" * DEEP),
    "configuration, of another type": ("config.yaml", lambda text: "- 3"),
    "configuration, contains itself": ("config.yaml", lambda text: f"{text}\ntask: &a {{name: *a}}\n"),
    "configuration, a long number": ("config.yaml", lambda text: f"run: {{dir: x, seed: {'9' * 5000}}}\n"),
    "configuration, huge": ("config.yaml", lambda text: HUGE),
    "configuration, an endless plan": (
        "config.yaml",
        lambda text: re.sub("rollouts: .*", f"rollouts: {10**12}", text),
    ),
    "state, deep": ("state.json", lambda text: '{"finished": ' + "[" * DEEP + "]" * DEEP + "}"),
    "state, huge": ("state.json", lambda text: HUGE),
    "processes, deep": (
        "processes.jsonl",
        lambda text: '{"env": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}\n",
    ),
    "episodes, deep values": (EPISODES, lambda text: text.replace("{}", "[" * DEEP + "]" * DEEP)),
    "episodes, deep calls": (
        EPISODES,
        lambda text: text.replace('"calls":[]', '"calls":[{"name":"x","kind":"skill","arguments":{}' * 400),
    ),
    "episodes, a huge line": (EPISODES, lambda text: HUGE),
    "episodes, another type": (EPISODES, lambda text: '{"episode": 3}\n{}\n' + text),
    "rows, no JSON": ("episodes.jsonl", lambda text: "\x00 garbage\n" + text),
    "ledger, large numbers": (LEDGER, lambda text: re.sub(r'"prompt":\d+', f'"prompt":{10**400}', text)),
    "ledger, infinite times": (LEDGER, lambda text: re.sub(r'"seconds":[\d.]+', '"seconds":1e308', text)),
    "ledger, other labels": (LEDGER, lambda text: text.replace('"attempt":"1"', '"attempt":"x"')),
    "sleep, another type": ("sleeps/0001.json", lambda text: '{"sleep": "x"}'),
    "sleep, unknown episodes": ("sleeps/0001.json", lambda text: text.replace("train/", "\x1b[2J/")),
    "skills, no Python": ("policies/v0001/skills.py", lambda text: "def ("),
    "skills, huge": ("policies/v0001/skills.py", lambda text: "a=b;" * 500_000),
    "index, other skills": ("policies/v0001/library.json", lambda text: text.replace("name", "nmae")),
}
"""The file and its new text, or its new length."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "run"
    return small_runs.one_sleep(folder, run={"rollouts": 2, "test_episodes": 1}).path


def damage_file(run: Path, lure: Lure, name: str, spoil: Callable[[str], str | int]) -> None:
    """Give one file of a run another text, or another length."""
    file = run / name
    content = spoil(file.read_text() if file.exists() else "")
    if isinstance(content, int):
        file.touch()
        os.truncate(file, content)
    else:
        file.write_text(content)


SPOILED: dict[str, Callable[[Path, Lure], None]] = {
    **ATTACKS,
    **{what: partial(damage_file, name=name, spoil=spoil) for what, (name, spoil) in DAMAGED.items()},
}


def copies(sound: Path, folder: Path, number: int) -> Iterator[Path]:
    """Copies of the sound run that differ in their seeds, so that none is left out as a duplicate."""
    for seed in range(number):
        run = Path(shutil.copytree(sound, folder / "runs" / str(seed)))
        configure(run, run={"seed": seed})
        yield run


def prepare(sound: Path, folder: Path) -> Path:
    """Return a folder with the sound run as `good`, and as `bad`."""
    for name in ("bad", "good"):
        shutil.copytree(sound, folder / "runs" / name)
    return folder / "runs"


def problem_of(words: str, folder: Path, lure: Lure) -> str:
    """Run a command, and return what is wrong with how it ended or with what it did."""
    shutil.rmtree(out := folder.parent / "out", ignore_errors=True)
    places = {"RUN": folder / "bad", "FOLDER": folder, "OUT": out}
    given = re.sub(r"\b(RUN|FOLDER|OUT)\b", lambda found: str(places[found[0]]), words).split()
    done = in_process(*given, cwd=lure.folder)
    said = done.stdout + done.stderr
    if done.returncode not in (0, 1) or "Traceback" in said:
        return f"exit status {done.returncode}: {said[-500:]}"
    if SECRET in said or "\x1b[2J" in said:
        return f"shows a secret or an escape sequence: {said[-500:]}"
    if done.returncode and not done.stdout and done.stderr.count("error: ") != 1:
        return f"no single line: {done.stderr[-500:]}"
    return lure.caught()


@pytest.mark.parametrize(
    "commands", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
@pytest.mark.parametrize("what", SPOILED)
def test_no_command_does_what_a_run_says_or_tells_its_damage_in_more_than_a_line(
    what: str, commands: tuple[str, ...], sound: Path, tmp_path: Path, lure: Lure
) -> None:
    folder = prepare(sound, tmp_path)
    SPOILED[what](folder / "bad", lure)
    for words in commands:
        found = problem_of(words, folder, lure)
        assert not found, f"{words}: {found}"


@pytest.mark.slow
def test_nor_does_a_command_that_reads_all_runs_of_a_folder(sound: Path, tmp_path: Path, lure: Lure) -> None:
    for run, spoil in zip(copies(sound, tmp_path, len(SPOILED)), SPOILED.values(), strict=True):
        spoil(run, lure)
    for words in TOGETHER:
        found = problem_of(words, tmp_path / "runs", lure)
        assert not found, f"{words}: {found}"


EVALUATE = "run run.rollouts=0 run.start_from=RUN"


@pytest.mark.parametrize(
    ("attack", "words", "field"),
    [
        ("environment", "status FOLDER", "env.name is 'evil:Evil'"),
        ("environment", "verify RUN", "env.name is 'evil:Evil'"),
        ("method", EVALUATE, "method.name is 'evil:Evil'"),
        ("model", f"{EVALUATE} run.dir=OUT", "model.name is "),
    ],
)
def test_a_refusal_names_file_and_field_and_how_to_allow_it(
    attack: str, words: str, field: str, sound: Path, tmp_path: Path, lure: Lure
) -> None:
    folder = prepare(sound, tmp_path)
    ATTACKS[attack](folder / "bad", lure)
    places = {"RUN": folder / "bad", "FOLDER": folder, "OUT": tmp_path / "out"}
    given = [re.sub(r"\b[A-Z]+$", lambda found: str(places[found[0]]), word) for word in words.split()]
    done = in_process(*given, cwd=lure.folder)
    refusal = next(line for line in (done.stdout + done.stderr).splitlines() if "trust" in line)
    assert f"{folder}/bad/config.yaml: {field}" in refusal
    assert not lure.mark.exists()
    # What it says to add is what allows it.
    trust = shlex.split(refusal.partition("If you trust it, add ")[2])
    again = in_process(*given, *trust, cwd=lure.folder)
    assert lure.mark.exists(), again


def test_a_class_that_the_user_names_in_an_override_needs_no_trust(
    sound: Path, tmp_path: Path, lure: Lure
) -> None:
    run = prepare(sound, tmp_path) / "bad"
    ATTACKS["environment"](run, lure)
    words = f"run run.rollouts=0 run.start_from={run} env=babyai {NO_SERVER} run.dir={tmp_path}/evaluation"
    assert "nothing answers at" in complaint(in_process(*words.split(), cwd=lure.folder))
    assert not lure.mark.exists()


@pytest.mark.slow
def test_suggested_commands_quote_what_a_run_says(sound: Path, tmp_path: Path, lure: Lure) -> None:
    folder, hostile = tmp_path / "runs", f"$(touch {lure.mark}); touch {lure.mark} #"
    shutil.copytree(sound, folder / "run")
    config = folder / "run/config.yaml"
    config.write_text(config.read_text().replace("name: tiny-random", f"name: '{hostile}'"))
    in_process("report", str(folder), "--out", str(tmp_path / "out"))
    texts = [file.read_text() for file in (tmp_path / "out" / "tables").glob("*.csv")]
    suggested = [
        cell
        for text in texts
        for row in csv.reader(text.splitlines())
        for cell in row
        if "speedrunner sweep" in cell
    ]
    assert suggested
    for line in suggested:
        assert f"model={hostile}" in shlex.split(line.partition("speedrunner ")[2])


@pytest.mark.slow
def test_modules_in_the_current_directory_take_no_library_s_place(
    sound: Path, tmp_path: Path, lure: Lure
) -> None:
    folder = tmp_path / "runs"
    for number in range(8):  # so many that several processes read them
        shutil.copytree(sound, folder / str(number))
    for name in ("yaml", "msgspec", "multiprocessing", "pickle", "pyarrow"):
        shutil.copy(lure.python, folder / f"{name}.py")
    (folder / "matplotlibrc").write_text("text.usetex: True\nbackend: module://yaml\n")
    script = str(Path(sys.executable).with_name("speedrunner"))
    for program in ([sys.executable, "-m", "speedrunner.cli"], [script]):
        for words in ("status .", "report .", "export . --to dataset --out data"):
            shutil.rmtree(folder / "data", ignore_errors=True)
            done = subprocess.run([*program, *words.split()], cwd=folder, capture_output=True, text=True)
            assert (done.returncode, lure.mark.exists()) == (0, False), done.stderr
