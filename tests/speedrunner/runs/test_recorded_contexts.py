"""A run has one context for all its episodes: what its GPUs or server allowed when it began."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from speedrunner.config.compose import compose
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.identity import identity
from speedrunner.runs.open_run import identify_process, with_recorded_contexts
from speedrunner.runs.outline import outline_runs
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.servers import fit_models
from speedrunner.runs.setup import Setup, set_up
from speedrunner.store.records import Process
from speedrunner.store.run_data import load
from speedrunner.store.stored_run import RunDirectoryError
from tests.gpu_kinds import GPUS, fake_driver, with_config
from tests.models.test_bundled_configs import ON_GPUS
from tests.scripted_engine import refuse
from tests.scripted_runs import CORRIDOR, LEARN, Runs, ScriptedRun, script, walker

pytestmark = pytest.mark.process

LONG = ("env.train=8", "run.rollouts=8", "run.sleep_every=8")


class TestOnGpus:
    @pytest.fixture
    def setup(self, tmp_path: Path) -> Setup:
        model_config = with_config(ON_GPUS["qwen3.5-27b"], tmp_path)
        file = tmp_path / "model.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(model_config)))
        return set_up(compose([f"env={CORRIDOR}", "method=react", f"model.name={file}"]))

    @staticmethod
    async def process(
        setup: Setup, kind: str, monkeypatch: pytest.MonkeyPatch, before: list[Process] | None = None
    ) -> Process:
        fake_driver(monkeypatch, GPUS[kind])
        monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: False)
        fitted = await fit_models(setup, print)
        return identity(with_recorded_contexts(Path("runs/x"), before or [], fitted), print)

    async def test_a_new_run_records_what_fits(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        process = await self.process(setup, "H100", monkeypatch)
        assert process.actor is process.inducer
        assert process.actor.context == 131_072
        assert process.actor.server.flags["max-num-seqs"] == 32

    async def test_a_move_to_a_gpu_with_too_little_memory_is_refused_with_the_remedy(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = await self.process(setup, "H200", monkeypatch)
        with pytest.raises(RunDirectoryError) as error:
            await self.process(setup, "H100", monkeypatch, [before])
        assert str(error.value) == (
            "runs/x has a context of 262,144 tokens, but qwen3.5-27b has 131,072 here: resume it on"
            " larger GPUs or with a server that has --max-model-len 262144, or start another run with"
            " run.dir=NEW"
        )


class TestWithAServer:
    """That runs already."""

    async def test_the_run_takes_the_servers_context_says_so_and_records_it(self, corridor: Runs) -> None:
        run = corridor(script(walker, LEARN))
        run.server.context = 8192
        await run.play("run.rollouts=0")
        line = f"{run.server.endpoint} accepts 8,192 tokens: using that as the context, not 16,384"
        assert " ".join(run.printed.split()).count(line) == 1
        (process,) = run.data.processes
        assert (process.actor.context, process.inducer.context) == (8192, 8192)

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
        assert outline_runs([PlannedRun(setup)])["all"].runs == 1  # which looks at no server
        process = identify_process(load(run.dir), setup, print)
        assert (process.actor.context, process.changes) == (8192, [])
        await run.play(*LONG)
        assert [process.actor.context for process in run.data.processes] == [8192, 8192]

    async def test_a_server_with_less_than_the_run_recorded_is_refused(self, corridor: Runs) -> None:
        run = corridor(script())
        await self.interrupted(run)
        run.server.context = 8192
        with pytest.raises(RunDirectoryError) as error:
            await run.play(*LONG)
        assert "has a context of 16,384 tokens, but tiny-random has 8,192 here" in str(error.value)
        assert "--max-model-len 16384" in str(error.value)
