"""All runs of a folder as one frame, and the page that shows what can be done with it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas
import pytest

from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.data import load, load_all
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, ScriptedRun, in_process, roomy, script, walker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> Path:
    """Two methods' runs, one of which learns."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "list.yaml").write_text("- method=speedrunner\n- method=react run.seed=1\n")
    with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
        given = ScriptedRun(folder, roomy(tiny_model_config), engine).arguments
        done = in_process("sweep", str(folder / "list.yaml"), *SCHEDULE, *given, f"--dir={folder / 'runs'}")
    assert done.returncode == 0, done.stderr
    return folder / "runs"


def test_a_frame_of_all_runs_names_the_run_of_each_row(folder: Path) -> None:
    runs = load_all(folder)
    found = runs.frame("episodes")
    assert list(found.columns[:5]) == ["run", "env", "method", "model_config", "seed"]
    assert found.groupby(["method", "seed"]).size().to_dict() == {("react", 1): 6, ("speedrunner", 0): 10}
    alone = pandas.concat([load(run.path).frame("episodes") for run in runs.runs], ignore_index=True)
    pandas.testing.assert_frame_equal(found.iloc[:, 5:], alone)


@pytest.mark.parametrize("table", ["episodes", "requests", "turns", "calls", "sleeps", "skills"])
def test_every_table_is_there_for_all_runs(folder: Path, table: str) -> None:
    found = load_all(folder).frame(table)  # type: ignore[arg-type]
    assert set(found.method) >= {"speedrunner"}


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no run found in"):
        load_all(tmp_path)


def test_the_page_s_code_runs(folder: Path) -> None:
    page = (CHECKOUT / "docs" / "data.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, object] = {}
    for block in blocks:
        # The page's runs lie elsewhere; this one learns.
        one = next(str(run.path) for run in load_all(folder).runs if "-speedrunner-" in run.path.name)
        code = block.replace("runs/smoke/babyai-speedrunner-tiny-random-seed0", one).replace(
            "runs/smoke", str(folder)
        )
        exec(compile(code, "docs/data.md", "exec"), names)
    assert "tests" in names
