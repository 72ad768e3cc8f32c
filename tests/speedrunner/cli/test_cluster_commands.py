"""`speedrunner prepare`, against a real server in place of the hub, and `speedrunner doctor`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.hub_server import BUNDLED, COMMIT, MODEL, HubServer, hub_model_config
from tests.scripted_runs import in_process, speedrunner

pytestmark = pytest.mark.process

NOBODY = "http://127.0.0.1:9"


def environment(folder: Path, hub: str = NOBODY) -> Mapping[str, str]:
    return {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0"}


@pytest.mark.parametrize(
    "env",
    [
        ["env=babyai"],
        ["env=crafter"],
        pytest.param(["env=scienceworld", "env.family=3"], marks=pytest.mark.slow),
    ],
)
def test_what_is_bundled_is_ready(env: list[str]) -> None:
    done = in_process("prepare", "model=tiny", *env)
    assert (done.returncode, done.stderr) == (0, "")
    model, environment, then = done.stdout.splitlines()
    assert model.startswith("ok           model tiny: 0.00109 GB in ")
    assert environment.startswith(f"ok           environment {env[0][4:]}: ")
    assert then == f"now, on a node: srun speedrunner doctor model=tiny {' '.join(env)}"


@pytest.mark.slow
def test_weights_come_from_the_hub_once_and_are_enough_without_it(tmp_path: Path) -> None:
    hub_model_config(tmp_path)
    given = f"model.name={tmp_path / 'model.yaml'}"
    with HubServer(BUNDLED) as hub:
        done = speedrunner("prepare", given, env=environment(tmp_path, hub.url))
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in hub.fetched
    assert f"snapshots/{COMMIT}\n" in done.stdout
    again = speedrunner("prepare", given, env=environment(tmp_path))
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, done.stdout.splitlines()[0])


def test_without_a_hub_one_line_says_so_and_the_rest_is_prepared(tmp_path: Path) -> None:
    hub_model_config(tmp_path)
    given = f"model.name={tmp_path / 'model.yaml'}"
    done = speedrunner("prepare", given, env=environment(tmp_path))
    assert done.returncode == 1
    model, environment_line = done.stdout.splitlines()
    assert model.startswith(
        f"FAILED       model tiny: {MODEL} is not in this machine's cache, and {NOBODY} cannot be"
    )
    assert f"`hf download {MODEL} --revision {COMMIT}`" in model
    assert environment_line.startswith("ok           environment babyai")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_every_model_and_environment_of_a_list_is_prepared_once() -> None:
    done = in_process("prepare", "experiment=main", "scale=smoke")
    assert done.returncode == 0
    names = [line.split(":")[0].split()[1:] for line in done.stdout.splitlines()[:-1]]
    assert names.count(["model", "tiny-random"]) == 1
    assert ["environment", "crafter"] in names


def test_hosted_models_need_nothing() -> None:
    done = in_process("prepare", "model=gpt-5.4-mini")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "ok           model gpt-5.4-mini: nothing to download: it is hosted at https://"
    )


class TestDoctor:
    @pytest.fixture(autouse=True)
    def key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the key of a hosted model, for which no engine is looked at."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")

    def test_a_line_for_each_thing_and_their_number_at_the_end(self, tmp_path: Path) -> None:
        done = in_process("doctor", "model=gpt-5.4-mini", f"run.dir={tmp_path}/one")
        assert (done.returncode, done.stderr) == (0, "")
        *lines, summary = done.stdout.splitlines()
        told = [line for line in lines if not line.startswith("             -> ")]
        assert all(line.startswith(("ok           ", "warning      ")) for line in told)
        assert f"ok           folder {tmp_path}: " in done.stdout
        counted = summary.partition(": ")[2]
        assert "failed" not in counted
        assert sum(int(word) for word in counted.split() if word.isdigit()) == len(told)

    def test_a_failure_is_told_with_its_remedy_and_is_the_exit_status(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OPENAI_API_KEY")
        done = in_process("doctor", "model=gpt-5.4-mini", "run.dir=/proc/runs/one")
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        at = next(
            n for n, line in enumerate(lines) if line.startswith("FAILED       folder /proc/runs: cannot be")
        )
        assert lines[at + 1] == "             -> choose another folder with run.dir=..., or --dir for a list"
        assert "FAILED       files of gpt-5.4-mini: " in done.stdout
        assert "2 failed" in lines[-1]

    def test_scripts_get_one_object(self, tmp_path: Path) -> None:
        done = in_process("doctor", "model=gpt-5.4-mini", f"run.dir={tmp_path}/one", "--json")
        assert done.returncode == 0
        found = json.loads(done.stdout)
        assert found["passed"] is True
        assert {each["level"] for each in found["findings"]} <= {"ok", "warning"}
        assert set(found["findings"][0]) == {"name", "level", "text", "remedy", "details", "found"}
