"""A run that moves: to another folder, machine, user, port and server. Nothing of that is part of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.model_configs import CHECKOUT
from speedrunner.store.process_notes import changes
from speedrunner.store.records import Process
from tests.scripted_runs import CORRIDOR, ScriptedRun

IDENTITY = """
import json, os, platform, socket, sys
wanted = json.loads(sys.argv[1])
os.umask(wanted["umask"])
platform.node = socket.gethostname = lambda: wanted["host"]
platform.python_version = lambda: wanted["python"]
import msgspec
from speedrunner.config.compose import compose
from speedrunner.runs.identity import identity
from speedrunner.runs.setup import set_up
setup = set_up(compose(wanted["settings"]))
print(msgspec.json.encode(identity(setup, lambda line: None)).decode())
"""


def read_identity(checkout: Path, folder: Path, settings: list[str], **wanted: Any) -> Process:
    """Return the identity of a run as a new process of another machine determines it."""
    environment: dict[str, str] = wanted.pop("environment")
    done = subprocess.run(
        [sys.executable, "-P", "-c", IDENTITY, json.dumps({**wanted, "settings": settings})],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Process)


@pytest.mark.slow
def test_a_run_has_the_same_identity_on_every_machine(tiny_folder: str, tmp_path: Path) -> None:
    copy, here, there = tmp_path / "copy", tmp_path / "here", tmp_path / "there"
    for folder in ("serving", "envs", "speedrunner", "models", "configs", "tests"):
        shutil.copytree(CHECKOUT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tiny_folder, copy / ".cache/models/tiny-random")
    here.mkdir()
    there.mkdir()
    model = CHECKOUT / "models/tiny-random.yaml"
    other = shutil.copy(model, there / "model.yaml")
    settings = [f"env={CORRIDOR}", "method=speedrunner"]
    before = read_identity(
        CHECKOUT,
        here,
        [*settings, f"model.name={model}", "serving.url=http://127.0.0.1:8000/v1", "run.dir=runs/a"],
        umask=0o022,
        host="node1",
        python="3.11.4",
        environment={"PYTHONHASHSEED": "1", "USER": "ada", "HOME": str(here)},
    )
    after = read_identity(
        copy,
        there,
        [*settings, f"model.name={other}", "serving.url=http://10.0.0.7:9000/v1", f"run.dir={there}/b"],
        umask=0o077,
        host="node2",
        python="3.11.9",
        environment={
            **{"PYTHONHASHSEED": "2", "USER": "bob", "LOGNAME": "bob", "HOME": str(there)},
            **{"LC_ALL": "C", "TZ": "Pacific/Auckland", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"},
        },
    )
    assert (before.host, after.host) == ("node1", "node2")
    assert before.versions["python"] != after.versions["python"]
    assert changes(before, after) == []


def test_a_port_or_a_patch_version_is_no_change(learnt: ScriptedRun) -> None:
    (process, *_) = learnt.data.processes

    def at(url: str, python: str) -> Process:
        actor = msgspec.structs.replace(process.model, base_url=url, path=None)
        versions = process.versions | {"python": python}
        return msgspec.structs.replace(process, model=actor, versions=versions)

    before = at("http://localhost:8000/v1", "3.11.4")
    assert changes(before, at("http://localhost:9000/v1", "3.11.9")) == []
    assert changes(before, at("https://api.example.org/v1", "3.12.0")) == [
        "model.base_url: localhost -> api.example.org",
        "versions.python: 3.11 -> 3.12",
    ]
