"""`speedrunner prepare`, against a real server in place of the hub, `doctor` and `serve`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.errors import InvalidModelConfig
from serving.model_configs import CHECKOUT, adapt, load_model_config
from speedrunner.cli.cluster_commands import serve, shell_command
from speedrunner.config.schema import InvalidConfig
from tests.golden_tables import Golden, refusals
from tests.hub_server import BUNDLED, COMMIT, MODEL, HubServer, hub_model_config
from tests.processes import HANGS_S, words
from tests.scripted_runs import command, in_process, speedrunner
from tests.stand_in_server import HEALTHY

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
    assert model.startswith(f"FAILED       model tiny: {MODEL} cannot be fetched: ")
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
        as_json = in_process("doctor", "model=gpt-5.4-mini", f"run.dir={tmp_path}/one", "--json")
        found = json.loads(as_json.stdout)
        assert (as_json.returncode, found["passed"], len(found["findings"])) == (0, True, len(told))
        assert set(found["findings"][0]) == {"name", "level", "text", "remedy", "details", "found"}

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


@contextmanager
def serving(*settings: str, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command, ended in any case; modules of the folder `first` stand before all others."""
    process = subprocess.Popen(
        command("serve", "model=tiny-random", *settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": f"{first}:{CHECKOUT}"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGS_S)


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What it says, up to the line with that word."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"it ended before it said {word!r}: {lines} {process.communicate()[1]}")


def listeners(process: psutil.Process) -> list[psutil._common.pconn]:
    """TCP sockets on which a process listens."""
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


@pytest.fixture
def stand_in(tiny_folder: str, tmp_path: Path) -> str:
    """A folder in which a stand-in for vLLM's server is found before vLLM."""
    module = tmp_path / "vllm/entrypoints/launchers/api_server/entry.py"
    module.parent.mkdir(parents=True)
    module.write_text(HEALTHY)
    for folder in list(module.parents)[:4]:
        (folder / "__init__.py").touch()
    (tmp_path / "vllm" / "platforms.py").write_text("class current_platform:\n    is_cpu = bool\n")
    return str(tmp_path)


def test_a_server_answers_until_it_is_stopped(stand_in: str) -> None:
    with serving(first=stand_in) as process:
        *_, ready, attach_line = lines_until(process, "another terminal")
        url = shlex.split(attach_line)[-1].removeprefix("serving.url=")
        assert ready == f"tiny-random is ready at {url}; press Ctrl-C to stop it"
        asyncio.run(attach(Endpoint.parse(url), "tiny-random"))
        processes = psutil.Process(process.pid).children(recursive=True)
        assert any("vllm" in words(each) for each in processes)
        assert not any(listeners(each) for each in processes)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, out) == (0, "stopped by SIGTERM; the server was stopped\n")
    # A server that takes long to start is told of now and then.
    assert [line for line in err.splitlines() if not line.startswith("starting vLLM, ")] == []
    assert not any(each.is_running() for each in processes)


def test_a_server_that_ends_by_itself_ends_the_command_with_its_reason(stand_in: str) -> None:
    with serving(first=stand_in) as process:
        *_, ready, attach_line = lines_until(process, "another terminal")
        address = re.search("unix:[^;]*", ready)
        assert address is not None
        folder = Path(address[0].removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert attach_line.endswith(f": speedrunner run model=tiny-random serving.url={address[0]}")
        (guard,) = psutil.Process(process.pid).children()
        (server,) = guard.children()
        server.kill()
        _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 1
    assert err.startswith("error: the server of model 'tiny-random' was killed by SIGKILL")
    assert not folder.exists()


class TestPrinting:
    """With `--print` nothing is started."""

    def test_a_socket_s_folder_and_the_model_are_made_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        serve(["model=tiny-random"], print_=True)
        recipe, folder, server = capsys.readouterr().out.strip().split(" && ")
        made = shlex.split(folder)
        assert made[:3] == ["mkdir", "-m", "700"]
        assert not Path(made[3]).exists()
        assert shlex.split(recipe)[1:] == [
            str(CHECKOUT / "models/random/build.py"),
            *["tiny-random", "--out", str(CHECKOUT / ".cache/models/tiny-random")],
        ]
        words = shlex.split(server)
        assert "VLLM_CPU_KVCACHE_SPACE=1" in words
        assert words[words.index("--uds") + 1] == f"{made[3]}/http"

    def test_replicas_and_random_weights_stand_in_it(self) -> None:
        words = shlex.split(shell_command(adapt(load_model_config("qwen3-8b"), 2, "dummy")))
        assert words[1:4] == [str(CHECKOUT / "models/random/build.py"), "qwen3-8b", "--out"]
        assert words[words.index("--data-parallel-size") + 1] == "2"
        assert words[words.index("--load-format") + 1] == "dummy"
        assert "--revision" not in words


@pytest.mark.parametrize("print_", [False, True])
def test_what_cannot_be_served_is_told_in_one_line(print_: bool, golden: Golden) -> None:
    lines = ("serving.url=unix:/x", "model=gpt-5.4-mini", "model=tiny-random model.load_format=dummy")
    tries = [(line, partial(serve, line.split(), print_)) for line in lines]
    golden("refused_servers.txt", refusals(tries, (InvalidConfig, InvalidModelConfig)))
