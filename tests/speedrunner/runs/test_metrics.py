"""Curves beside a run: what they hold, read back by their own readers, and that they never stop a run."""

from __future__ import annotations

import pytest

from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.results.run_result import read_result
from speedrunner.runs import metrics
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData
from tests.scripted_runs import LEARN, Runs, script, speedrunner, walker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def run(shared_corridor: Runs) -> RunData:
    played = shared_corridor(script(walker, LEARN), "logging=both", caveat="its answers come from a script")
    # In a process of its own: W&B says more where some packages are imported.
    done = speedrunner("run", *played.overrides())
    assert (done.returncode, done.stderr) == (0, "")
    assert "no more curves" not in done.stdout
    return played.data


def scalars(run: RunData) -> dict[str, dict[int, float]]:
    """The curves by name, as TensorBoard reads them: values by rollouts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert tags["tensors"] == ["notes"]
    (note,) = events.Tensors("notes")
    lines = note.tensor_proto.string_val[0].decode().splitlines()
    assert lines == [f"- {each}" for each in caveats([run])]
    return {tag: {each.step: each.value for each in events.Scalars(tag)} for tag in tags["scalars"]}


@pytest.mark.slow
def test_tensorboard_reads_the_values_of_the_tables(run: RunData) -> None:
    found = scalars(run)
    result = read_result(run.path, None)
    for name in ("score", "llm_calls", "uncached", "output", "limited", "episodes", "unscored"):
        known = result.checkpoints[name].astype(float).to_dict()
        assert found[f"test/{name}"] == pytest.approx(known, rel=1e-6), name
    episodes = result.episodes[result.episodes["phase"] == "test"].copy()
    priced = run_costs(run, price_book(run)).episodes
    episodes["usd"] = [priced[key].useful_usd for key in episodes["episode"]]  # without prefix warm-ups
    usd = episodes.groupby("checkpoint")["usd"].mean().to_dict()
    assert found["test/actor_usd"] == pytest.approx(usd, rel=1e-6)
    for name in ("accepted", "refused", "llm_calls", "output", "usd", "prefix_after", "prefix_invalidated"):
        values = list(found[f"sleep/{name}"].values())
        assert values == pytest.approx(result.sleeps[name].tolist(), rel=1e-6), name
    assert found["sleep/skills"] == {2: 1.0, 4: 1.0}
    first = result.episodes[(result.episodes["phase"] == "train") & (result.episodes["checkpoint"] == 0)]
    for name in ("score", "output"):
        assert found[f"train/{name}"][2] == pytest.approx(first[name].mean(), rel=1e-6), name


@pytest.mark.slow
def test_wandb_has_an_offline_run_with_the_configuration(run: RunData) -> None:
    (folder,) = (run.path / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    content = file.read_bytes()
    for words in (b"test/score", b"test/actor_usd", b"sleep/skills", b"rollouts", b"come from a script"):
        assert words in content


@pytest.mark.slow
def test_wandb_logs_in_the_mode_that_its_own_variable_names(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = corridor(script(walker), "method=react", "run.rollouts=0", "logging=wandb")
    done = run.cli()
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning" not in done.stdout
    assert not list((run.data.path / "wandb").glob("*-run-*"))


def test_one_that_fails_is_told_once_and_the_run_goes_on(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(metrics.TensorBoard, "log", full)
    run = corridor(script(walker), "method=react", "run.rollouts=0", "logging=tensorboard")
    done = run.cli()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("warning: stopped writing curves for tensorboard: OSError: disk full") == 1
    assert len(run.data.episodes) == 2
