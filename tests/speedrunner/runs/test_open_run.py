"""How a process resumes or extends a run: with the same contexts, and a plan that contains the stored one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from serving.errors import SpendingCapReached
from speedrunner.config.compose import compose
from speedrunner.config.schema import to_yaml
from speedrunner.methods.method_registry import METHODS
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.identity import identity
from speedrunner.runs.open_run import check_configuration, identify_process, with_recorded_contexts
from speedrunner.runs.planned_runs import PlannedRun, outline_runs
from speedrunner.runs.servers import fit_models
from speedrunner.runs.setup import set_up
from speedrunner.runs.verification.verify import verify
from speedrunner.store.process_notes import process_lines
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from tests.gpu_kinds import GPUS, fake_driver, with_config
from tests.models.test_bundled_configs import ON_GPUS
from tests.scripted_engine import refuse
from tests.scripted_runs import (
    CORRIDOR,
    LEARN,
    PLANNED,
    Runs,
    ScriptedRun,
    check_finished,
    check_whole,
    script,
    walker,
)
from tests.tampered_runs import names

pytestmark = pytest.mark.process


async def verified_levels(folder: Path) -> set[str]:
    """Verify a run, and return the levels of its findings."""
    found = await verify(folder, lambda line: None, lambda check: None, names(folder))
    return {check.level for check in found.findings}


def content(run: RunData) -> list[tuple[object, ...]]:
    """What was played, without times: each episode with its policy, prompt, answers and outcome."""
    played = [*run.trajectories(), *run.evaluations()]
    return sorted(
        (each.episode, each.task.index, each.policy, each.prompt_hash, [turn.text for turn in each.turns],
         each.termination.value)
        for each in played
    )  # fmt: skip


@pytest.fixture(scope="module")
def short(shared_corridor: Runs) -> ScriptedRun:
    """A finished run of two rollouts."""
    return shared_corridor(script(walker, LEARN), "run.rollouts=2").finish()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_run_has_the_configuration_with_which_it_was_begun(tmp_path: Path, method: str) -> None:
    setup = set_up(compose([f"method={method}", "env=crafter", "model=tiny", f"run.dir={tmp_path / 'run'}"]))
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(to_yaml(setup.config))
    assert check_configuration(RunData(tmp_path / "run"), setup) is None


class TestFinishedRun:
    async def test_grows_into_the_run_that_was_planned_longer_from_the_start(
        self, short: ScriptedRun, learnt: ScriptedRun
    ) -> None:
        run = short.copy()
        before = {file: file.read_bytes() for file in run.dir.rglob("*") if file.is_file()}
        await run.play("run.rollouts=4")
        assert "the run is extended: run.rollouts: 2 -> 4" in run.printed
        check_whole(run)
        for file, text in before.items():
            if file.name not in ("config.yaml", "state.json"):
                assert file.read_bytes().startswith(text), file
        old, new = before[run.dir / "config.yaml"], (run.dir / "config.yaml").read_bytes()
        assert new == old.replace(b"rollouts: 2\n", b"rollouts: 4\n") != old
        assert [process.changes for process in run.data.processes] == [[], ["run.rollouts: 2 -> 4"]]
        (line,) = process_lines(run.data.processes)
        assert line.endswith("differs from the one before it: run.rollouts: 2 -> 4.")
        assert await verified_levels(run.dir) == {"ok"}

        assert content(run.data) == content(learnt.data)
        extended, planned = ([each.policies.load(n) for n in range(3)] for each in (run.data, learnt.data))
        assert extended == planned

    async def test_of_a_method_that_does_not_learn_gets_evaluations(self, corridor: Runs) -> None:
        run = corridor(script(walker), "method=react", "run.rollouts=2")
        await run.play()
        await run.play("run.rollouts=4")
        assert run.data.checkpoints == [0, 2, 4]
        check_finished(run.dir, [key for key in PLANNED if key.startswith("test")], sleeps=0)
        assert await verified_levels(run.dir) == {"ok"}


async def test_an_unfinished_run_is_extended_as_well(corridor: Runs) -> None:
    run = corridor(script(), api="chat")
    with pytest.raises(SpendingCapReached):
        await run.play("run.rollouts=2", "serving.spending_cap_usd=0.001")
    await run.play("run.rollouts=4")
    check_whole(run)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("run.eval_every=3",), "run.rollouts=2 is not a multiple of run.eval_every=3"),
        (("run.sleep_every=4",), "run.rollouts=2 is not a multiple of run.sleep_every=4"),
    ],
)  # fmt: skip
def test_a_run_whose_longer_plan_is_another_is_refused(
    corridor: Runs, settings: tuple[str, ...], reason: str
) -> None:
    run = corridor(script(), "env.train=16", "run.rollouts=2", *settings)
    write_config(run)
    longer = set_up(compose(run.overrides("run.rollouts=4")))
    with pytest.raises(RunDirectoryError) as error:
        check_configuration(run.data, longer)
    assert str(error.value) == (
        f"{run.dir} cannot be extended to 4 rollouts: {reason}; continue in another run:"
        f" run.start_from={run.dir} run.dir=NEW"
    )


def test_an_evaluation_that_would_have_carried_history_is_refused(
    corridor: Runs, learnt: ScriptedRun
) -> None:
    run = corridor(script(), "run.rollouts=0", f"run.start_from={learnt.dir}")
    write_config(run)
    longer = set_up(compose(run.overrides("run.rollouts=4")))
    with pytest.raises(RunDirectoryError, match="has no copy of the training history; continue in"):
        check_configuration(run.data, longer)
    assert check_configuration(run.data, set_up(compose(run.overrides()))) is None


def write_config(run: ScriptedRun) -> None:
    """Write the configuration of a run that has played nothing."""
    with RunDirectory.open_for_writing(run.dir) as directory:
        directory.write_config(to_yaml(compose(run.overrides())))


LONG = ("env.train=8", "run.rollouts=8", "run.sleep_every=8")


async def test_a_new_run_on_gpus_records_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_config = with_config(ON_GPUS["qwen3.5-27b"], tmp_path)
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump(msgspec.to_builtins(model_config)))
    fake_driver(monkeypatch, GPUS["H100"])
    monkeypatch.setattr("serving.gpu_check.is_cpu_build", lambda: False)
    setup = set_up(compose([f"env={CORRIDOR}", "method=react", f"model.name={file}"]))
    process = identity(with_recorded_contexts(Path("runs/x"), [], await fit_models(setup, print)), print)
    assert process.actor is process.inducer
    assert process.actor.context == 131_072
    assert process.actor.server.flags["max-num-seqs"] == 32


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
