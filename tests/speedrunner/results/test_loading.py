"""The tables of one run and of a folder's, and the page that shows what can be done with them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import get_args

import pandas
import pytest

from serving.model_configs import CHECKOUT
from speedrunner.results import TableName, load, load_all
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError, sleep_key
from tests.scripted_runs import LEARN, Runs, ScriptedRun, script, walker

TABLES: tuple[TableName, ...] = get_args(TableName)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A run without an episode."""
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config("run: {}\n")
        run.write_policy(Policy(version=0))
    return run.path


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_run_has_the_columns_of_a_full_one_and_their_types(
    learnt: ScriptedRun, empty: Path, table: TableName
) -> None:
    full, none = learnt.data.frame(table), load(empty).frame(table)
    assert len(full) > 0
    assert len(none) == 0
    assert none.dtypes.to_dict() == full.dtypes.to_dict()
    assert {type(value) for value in full.to_numpy().flatten()} <= {str, int, float, bool, type(pandas.NA)}


@pytest.mark.parametrize("prices", [None, "gpt-5.4-mini"])
def test_requests_add_up_to_their_episodes_and_sleeps(learnt: ScriptedRun, prices: str | None) -> None:
    data = learnt.data
    requests = data.frame("requests", prices)
    requests["uncached"] = requests["usage_prompt"] - requests["usage_cached"]
    names = {"uncached": "uncached", "usage_cached": "cached", "usage_completion": "output"}
    names |= {"usage_reasoning": "reasoning", "usd": "usd"}
    by_key = requests[~requests["wasted"]].groupby("labels_episode")
    sums = by_key[[*names]].sum().rename(columns=names).assign(llm_calls=by_key.size())
    episodes = data.frame("episodes", prices).set_index("episode")
    warm = requests[requests["labels_role"] == "prefix_warm_up"].groupby("labels_policy")["usd"].sum()
    prefixes = episodes["policy"].clip(upper=1)  # the second sleep changed nothing
    shares = prefixes.map(warm / prefixes.value_counts())
    assert (shares[episodes["policy"] == 2] > 0).any()
    episodes["usd"] -= shares
    sleeps = data.frame("sleeps", prices)
    sleeps = sleeps.set_index(sleeps["sleep"].map(sleep_key))
    assert episodes["usd"].min() > 0
    for name in sums:
        for frame in (episodes, sleeps):
            assert sums.loc[frame.index, name].tolist() == pytest.approx(frame[name].tolist()), name
    first = by_key[["labels_phase", "labels_policy", "labels_attempt"]].first()
    assert first.loc[episodes.index].to_numpy().tolist() == (
        episodes[["phase", "policy", "attempt"]].to_numpy().tolist()
    )


def test_without_prices_usd_are_missing_and_everything_else_stays(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    (run / "processes.jsonl").unlink()
    (run / "state.json").write_text('{"format": 3, "secret": "s"}')
    for table in TABLES:
        without, usual = load(run).frame(table), learnt.data.frame(table)
        assert without["usd"].isna().all()
        pandas.testing.assert_frame_equal(without.drop(columns="usd"), usual.drop(columns="usd"))


def test_episodes_of_an_unfinished_evaluation_are_not_complete(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("test_episodes: 2", "test_episodes: 3"))
    episodes = load(run).frame("episodes")
    assert episodes[episodes["complete"]]["phase"].unique().tolist() == ["train"]
    assert load(learnt.dir).frame("episodes")["complete"].all()


def test_episodes_without_a_ledger_are_an_error(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    (run / "requests.jsonl").unlink()
    (run / "state.json").write_text('{"format": 3, "secret": "s"}')
    with pytest.raises(RunDirectoryError, match="has episodes but no ledger"):
        load(run).frame("episodes")


def test_the_documentation_names_every_column(empty: Path) -> None:
    text = (CHECKOUT / "docs" / "data.md").read_text()
    columns = {name for table in TABLES for name in load(empty).frame(table)}
    assert [name for name in sorted(columns) if f"`{name}`" not in text and "at_most_" not in name] == []


@pytest.fixture(scope="module")
def folder(shared_corridor: Runs) -> Path:
    """Two methods' runs, one of which learns."""
    return shared_corridor(script(walker, LEARN)).sweep("- method=speedrunner\n- method=react run.seed=1\n")


@pytest.mark.process
def test_a_frame_of_all_runs_names_the_run_of_each_row(folder: Path) -> None:
    runs = load_all(folder)
    found = runs.frame("episodes")
    assert list(found.columns[:5]) == ["run", "env", "method", "model_config", "seed"]
    assert found.groupby(["method", "seed"]).size().to_dict() == {("react", 1): 6, ("speedrunner", 0): 10}
    alone = pandas.concat([load(path).frame("episodes") for path in runs.paths], ignore_index=True)
    pandas.testing.assert_frame_equal(found.iloc[:, 5:], alone)


@pytest.mark.process
def test_the_page_s_code_runs(folder: Path) -> None:
    page = (CHECKOUT / "docs" / "data.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, object] = {}
    for block in blocks:
        # The page's runs lie elsewhere; this one learns.
        one = next(str(path) for path in load_all(folder).paths if "-speedrunner-" in path.name)
        code = block.replace("runs/smoke/babyai-speedrunner-tiny-random-seed0", one).replace(
            "runs/smoke", str(folder)
        )
        exec(compile(code, "docs/data.md", "exec"), names)
    assert "tests" in names
