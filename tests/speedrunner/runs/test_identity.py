"""What a run stores of what determines it, and what may change of that while it goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from serving.engine.gpus import GpuReport
from serving.model_config import ModelConfig, Roles, ServerOptions
from serving.model_configs import load_model_config
from serving.usage import Prices
from speedrunner.config.compose import compose
from speedrunner.runs import identity as identities
from speedrunner.runs.identity import STRIDE, accept_changes, identity
from speedrunner.runs.setup import set_up
from speedrunner.store.process_notes import caveats, changes, process_lines
from speedrunner.store.records import Machine, Process
from speedrunner.store.stored_run import RunDirectoryError, RunFiles, State
from tests.gpu_kinds import GPUS
from tests.scripted_runs import CORRIDOR

pytestmark = pytest.mark.process

Changes = dict[str, Any]

CHAT: Changes = {"api": "chat"}
HOSTED: Changes = {"api": "chat", "base_url": "http://localhost"}


@pytest.fixture
def process(tiny_model_config: ModelConfig) -> Process:
    return identity(set_up(compose([f"env={CORRIDOR}", "method=react", "model=tiny-random"])), print)


def changed(process: Process, **more: object) -> Process:
    return msgspec.structs.replace(process, **more)


def test_a_machine_names_its_gpus_and_their_memory_if_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = msgspec.structs.replace(GPUS["A100"], name="NVIDIA GB10", total=0)
    monkeypatch.setattr(identities, "read_gpus", lambda: GpuReport(installed=[GPUS["H200"], unknown]))
    assert identities.machine.__wrapped__().gpus == ["NVIDIA H200, 143771 MiB", "NVIDIA GB10, ? MiB"]


def test_it_names_everything_by_what_it_is_in(process: Process) -> None:
    assert set(process.env) == {"description", "primitives", "tools", "limits", "tasks"}
    shared_names = ("actor_world", "description", "episodes", "example", "primitives", "rules", "world")
    shared = {f"method/{name}" for name in shared_names}
    assert set(process.prompts) == {"actor/system", "actor/user"} | shared
    assert set(process.code) >= {"serving", "envs", "speedrunner", "tests.toy_env"}
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(
        process.models["tiny-random"]
    )
    assert process.model == load_model_config("tiny-random")


def test_it_is_the_same_in_another_process_at_another_time(process: Process) -> None:
    for each in (identities._package, identities._commit):
        each.cache_clear()  # type: ignore[attr-defined]
    later = identity(set_up(compose([f"env={CORRIDOR}", "method=react", "model=tiny-random"])), print)
    machine = Machine("another", 64, 512.0, ["H100"] * 8)
    elsewhere = changed(later, started=0.0, host="there", pid=1, machine=machine)
    assert changes(process, elsewhere) == []


def _model_config(**more: object) -> Callable[[Process], Process]:
    def change(process: Process) -> Process:
        model_config = msgspec.structs.replace(process.model, **more)
        return changed(process, model=model_config)

    return change


def _flags(**flags: int) -> Callable[[Process], Process]:
    def change(process: Process) -> Process:
        server = process.model.server
        return _model_config(server=msgspec.structs.replace(server, flags={**server.flags, **flags}))(process)

    return change


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_model_config(context=4096), "model.context: "),
        (_model_config(revision="b" * 40), "model.revision: null -> bbbb"),
        (lambda p: changed(p, env=p.env | {"description": "0"}), "env.description: "),
        (lambda p: changed(p, env=p.env | {"tasks": "0"}), "env.tasks: "),
        (lambda p: changed(p, prompts=p.prompts | {"actor/system": "0"}), "prompts.actor/system: "),
        (lambda p: changed(p, prompts={}), "prompts.actor/system: "),
        (
            lambda p: changed(p, models={"tiny-random": {"model.safetensors": "0"}}),
            "models.tiny-random.model.safetensors: ",
        ),
    ],
)
def test_another_run_is_refused_whatever_is_accepted(
    process: Process, change: Callable[[Process], Process], line: str
) -> None:
    with pytest.raises(RunDirectoryError, match="was played with other inputs") as error:
        accept_changes(Path("runs/x"), process, change(process), accept=True)
    assert line in str(error.value)
    assert str(error.value).endswith("; undo the change, or start another run with run.dir=NEW")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: changed(p, code=p.code | {"speedrunner": "0"}),
        lambda p: changed(p, versions=p.versions | {"vllm": "9"}),
        _model_config(server=ServerOptions()),
    ],
)
def test_other_code_goes_on_when_that_is_accepted(
    process: Process, change: Callable[[Process], Process]
) -> None:
    with pytest.raises(RunDirectoryError, match=r"other code: .* run\.accept_changes=true"):
        accept_changes(Path("runs/x"), process, change(process), accept=False)
    assert accept_changes(Path("runs/x"), process, change(process), accept=True).changes


@pytest.mark.parametrize(
    "change",
    [
        _model_config(replicas=4, gpus=4, tried="on a Tuesday", path="elsewhere"),
        _flags(**{"max-num-seqs": 104, "max-num-batched-tokens": 16_384, "compilation-config": {"x": [1]}}),
        lambda p: changed(p, versions=p.versions | {"code": "another commit"}),
        lambda p: changed(p, prices={"tiny-random": Prices(1, 2, 3)}),
    ],
)
def test_what_moves_no_result_is_no_change(process: Process, change: Callable[[Process], Process]) -> None:
    assert accept_changes(Path("runs/x"), process, change(process), accept=False).changes == []


@pytest.mark.parametrize(
    ("method", "own", "others"),
    [
        ("opo", "method/opo/system", "asi"),
        ("asi_replay", "method/asi/system", "opo"),
        ("speedrunner", "method/system", "opo"),
        ("voyager", "method/curriculum/system", "asi"),
    ],
)
def test_a_method_s_prompts_are_those_that_it_uses(method: str, own: str, others: str) -> None:
    config = compose(
        ["env=tests.toy_env:Racetrack", f"method={method}", "model=tiny-random", "run.wording=2"]
    )
    prompts = identity(set_up(config), print).prompts
    assert {own, "method/rules", "actor/system", "actor/wording_2/system"} <= set(prompts)
    assert not any(others in name or "wording_1" in name for name in prompts)


def test_what_an_own_environment_extends_is_code_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "own_base.py"
    base.write_text("from tests.toy_env import Corridor\nclass Base(Corridor): ...\n")
    (tmp_path / "own_world.py").write_text("import own_base\nclass World(own_base.Base): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    def code() -> dict[str, str]:
        config = compose(["env=own_world:World", "method=react", "model=tiny-random"])
        return identity(set_up(config), print).code

    before = code()
    assert {"own_world", "own_base", "tests.toy_env"} <= set(before)
    assert "abc" not in before
    base.write_text(base.read_text() + "BONUS = 50\n")
    after = code()
    assert {name for name in after if after[name] != before[name]} == {"own_base"}


@pytest.mark.parametrize("start", [0, 17, STRIDE, 2 * STRIDE])
def test_no_tensor_of_a_stretch_changes_unseen(tmp_path: Path, start: int) -> None:
    file, weights = tmp_path / "model.bin", bytearray(3 * STRIDE)
    file.write_bytes(weights)
    before = identities._digest_of([file])
    weights[start : start + STRIDE] = b"x" * STRIDE
    file.write_bytes(weights[: 3 * STRIDE])
    assert identities._digest_of([file]) != before


def said(*processes: Process, method: str = "asi", rollouts: int = 8) -> list[str]:
    """The caveats of a run by these processes."""
    run: Any = SimpleNamespace(
        config={"method": {"name": method}, "run": {"rollouts": rollouts}},
        processes=processes,
        state=State(),
        files=RunFiles(Path("none")),
    )
    return caveats([run, run])


def test_what_model_configs_remark_is_said_once_for_each_model(process: Process) -> None:
    role = msgspec.structs.replace(process.model.roles.actor, thinking_tokens=8)
    reasoning = msgspec.structs.replace(process.model, roles=Roles(role, role))
    process = changed(process, model=reasoning)
    assert said(process) == process_lines([process]) == []
    teaching = msgspec.structs.replace(reasoning, caveat="a teaching model")
    other = msgspec.structs.replace(reasoning, name="other", caveat="another one")
    after = [changed(process, model=model_config) for model_config in (teaching, other)]
    assert said(*after) == ["other: another one", "tiny-random: a teaching model"]
    assert changes(process, changed(process, model=teaching)) == []


@pytest.mark.parametrize(
    ("method", "model", "actor", "inducer", "expected"),
    [
        ("asi", {}, {}, {}, ["actor and inducer (thinking_tokens=0)"]),
        ("react", {}, {}, {}, ["actor (thinking_tokens=0)"]),
        ("asi", {}, {"thinking_tokens": 8}, {}, ["inducer (thinking_tokens=0)"]),
        ("asi", HOSTED, {"reasoning_effort": "low"}, {"reasoning_effort": "none"},
         ["inducer (reasoning_effort=none)"]),
        ("asi", CHAT, {}, {}, ["actor and inducer (no reasoning-parser in server.flags)"]),
        ("asi", CHAT | {"server": ServerOptions({"reasoning-parser": "qwen3"})}, {}, {}, []),
    ],
)  # fmt: skip
def test_roles_that_cannot_reason_are_named_with_the_setting(
    process: Process, method: str, model: Changes, actor: Changes, inducer: Changes, expected: list[str]
) -> None:
    role = process.model.roles.actor
    roles = Roles(msgspec.structs.replace(role, **actor), msgspec.structs.replace(role, **inducer))
    played = msgspec.structs.replace(process.model, roles=roles, **model)
    lines = said(changed(process, model=played), method=method)
    assert lines == [f"tiny-random: no reasoning before calls of {each}" for each in expected]


def test_a_run_without_rollouts_asks_no_inducer(process: Process) -> None:
    assert said(process, rollouts=0) == said(process, method="react") != said(process)


def recorded_commit() -> str:
    return str(inspect.unwrap(identities._commit)())  # tests compute it once


class TestTheRecordedCommit:
    def test_is_the_same_in_a_checkout_of_another_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = recorded_commit()
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its tests
        assert recorded_commit() == own

    def test_is_replaced_by_the_reason_where_git_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert recorded_commit() == "unknown: [Errno 2] No such file or directory: 'git'"
        (tmp_path / "git").write_text("#!/bin/sh\necho fatal: detected dubious ownership >&2\nexit 128\n")
        (tmp_path / "git").chmod(0o700)
        assert recorded_commit() == "unknown: fatal: detected dubious ownership"
