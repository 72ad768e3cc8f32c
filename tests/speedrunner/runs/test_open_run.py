"""How a process resumes a run: with the same configuration and the same contexts."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import msgspec
import pytest
import yaml
from rich.console import Console

from speedrunner.config.compose import compose
from speedrunner.config.schema import to_yaml
from speedrunner.methods.method_registry import METHODS
from speedrunner.runs import open_run
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.identity import identity
from speedrunner.runs.open_run import check_configuration, identify_process, with_recorded_context
from speedrunner.runs.planned_runs import PlannedRun, is_unfinished
from speedrunner.runs.servers import fit_model
from speedrunner.runs.setup import set_up
from speedrunner.store.run_data import RunData, load
from speedrunner.store.run_lock import RunLock
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from tests.gpu_kinds import GPUS, fake_driver, with_config
from tests.models.test_bundled_configs import ON_GPUS
from tests.scripted_engine import refuse
from tests.scripted_runs import (
    CORRIDOR,
    LEARN,
    Runs,
    ScriptedRun,
    script,
    walker,
)
from tests.speedrunner.store.test_run_lock import move_to_another_machine, owner_file

pytestmark = pytest.mark.process


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_run_has_the_configuration_with_which_it_was_begun(tmp_path: Path, method: str) -> None:
    setup = set_up(compose([f"method={method}", "env=crafter", "model=tiny", f"run.dir={tmp_path / 'run'}"]))
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(to_yaml(setup.config))
    check_configuration(RunData(tmp_path / "run"), setup)


async def test_a_resumed_run_waits_for_an_owner_on_a_lost_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RunLock(tmp_path / "run" / "lock")
    lock.path.parent.mkdir()
    lock.__enter__()
    lock._stop.set()
    move_to_another_machine(lock.path, silent_for=45)
    said: list[str] = []

    class Terminal:
        def print(self, line: str, **_: object) -> None:
            said.append(line)
            os.utime(owner_file(lock.path), (0, 0))  # it stays silent

    monkeypatch.setattr(open_run, "LOOK_S", 0)
    with ExitStack() as owned:
        await open_run._own(tmp_path / "run", owned, cast(Console, Terminal()))
    (line,) = said
    assert line.startswith("waiting: ")
    assert "on node7" in line


LONG = ("env.train=8", "run.rollouts=8", "run.sleep_every=8")


async def test_a_new_run_on_gpus_records_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_config = with_config(ON_GPUS["qwen3.5-27b"], tmp_path)
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(model_config)))
    fake_driver(monkeypatch, GPUS["H100"])
    monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: False)
    setup = set_up(compose([f"env={CORRIDOR}", "method=react", f"model.name={file}"]))
    process = identity(with_recorded_context(RunData(Path("runs/x")), await fit_model(setup, print)), print)
    assert process.model.context == 131_072
    assert process.model.server.flags["max-num-seqs"] == 32


class TestWithAServer:
    """That runs already."""

    async def test_the_run_takes_the_servers_context_says_so_and_records_it(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))
        run.server.context = 8192
        await run.play("run.rollouts=0")
        line = f"{run.server.endpoint} accepts 8,192 tokens: using that as the context, not 16,384"
        assert " ".join(run.printed.split()).count(line) == 1
        (process,) = run.data.processes
        assert process.model.context == 8192

    @staticmethod
    async def interrupted(run: ScriptedRun) -> None:
        """Play it until its engine refuses everything."""
        run.server.script = script(lambda request: refuse(404, "gone"))
        with pytest.raises(RunStopped):
            await run.play(*LONG)
        run.server.script = script(walker, LEARN)

    async def test_a_resumed_run_keeps_its_context(self, corridor: Runs) -> None:
        run = corridor(script())
        run.server.context = 8192
        await self.interrupted(run)
        run.server.context = None
        setup = set_up(compose(run.overrides(*LONG)))
        assert is_unfinished(PlannedRun(setup))  # which looks at no server
        process = identify_process(load(run.dir), setup, print)
        assert (process.model.context, process.changes) == (8192, [])
        await run.play(*LONG)
        assert [process.model.context for process in run.data.processes] == [8192, 8192]

    async def test_a_run_without_the_inputs_of_its_episodes_is_refused(self, corridor: Runs) -> None:
        run = corridor(script())
        await self.interrupted(run)
        run.data.files.processes.unlink()
        with pytest.raises(RunDirectoryError, match=r"has episodes, but no processes\.jsonl, which says"):
            await run.play(*LONG)

    async def test_a_server_with_less_than_the_run_recorded_is_refused(self, corridor: Runs) -> None:
        run = corridor(script())
        await self.interrupted(run)
        run.server.context = 8192
        with pytest.raises(RunDirectoryError) as error:
            await run.play(*LONG)
        assert str(error.value) == (
            f"{run.dir} has a context of 16,384 tokens, but tiny-random has 8,192 here: resume it on larger"
            " GPUs or with a server that has --max-model-len 16384, or start another run with run.dir=NEW"
        )
