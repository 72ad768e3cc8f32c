"""Learning curves of `speedrunner compare`: bars whose lengths are the numbers beside them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from speedrunner.cli.bar_charts import BAR, MEASURES, Plotted, draw_curves
from tests.scripted_runs import ScriptedRun, in_process


def row(checkpoint: int, score: float | None, output: float = 10.0) -> dict[str, Any]:
    means = {"llm_calls": 2.0, "uncached": 0.0, "cached": 0.0, "output": output, "cost_usd": None}
    return {"checkpoint": checkpoint, "episodes": 2, "score": score, **means}


def test_the_greatest_value_of_all_runs_has_the_longest_bar() -> None:
    lines = list(
        draw_curves({"one": Plotted([row(0, 0.25), row(10, 0.5)], 2), "other": Plotted([row(0, 1.0)], 2)})
    )
    score = lines[: lines.index("LLM calls per test episode")]
    assert score == [
        "score",
        "  one",
        f"      0 {'█' * (BAR // 4)} 0.250",
        f"     10 {'█' * (BAR // 2)} 0.500",
        "  other",
        f"      0 {'█' * BAR} 1.000",
    ]


def test_a_single_run_needs_no_name() -> None:
    assert list(draw_curves({"one": Plotted([row(0, 1.0)], 2)}))[:2] == [
        "score",
        f"      0 {'█' * BAR} 1.000",
    ]


def test_parts_of_a_character_are_drawn() -> None:
    lines = list(draw_curves({"": Plotted([row(0, 1.0, 320.0), row(10, 1.0, 1.0)], 2)}))
    assert "     10 ▏ 1" in lines


def test_what_is_not_known_and_what_is_nothing_is_said() -> None:
    lines = list(draw_curves({"": Plotted([row(0, None)], 2)}))
    assert lines[:2] == ["score", "      0 not known"]
    assert lines[lines.index("uncached tokens") + 1] == "      0 0"
    assert lines[-1] == "      0 not known"


def test_without_a_checkpoint_that_is_said() -> None:
    assert list(draw_curves({"": Plotted([], 2)})) == ["no test episode is finished yet"]


def test_a_checkpoint_that_is_not_whole_says_of_how_many_episodes_it_is() -> None:
    lines = list(draw_curves({"": Plotted([row(0, 1.0)], 20)}))
    assert lines[1] == f"      0 {'█' * BAR} 1.000 (2 of 20 episodes)"


def test_a_terminal_without_blocks_gets_other_bars() -> None:
    lines = list(draw_curves({"": Plotted([row(0, 1.0), row(10, 0.5)], 2)}, "#"))
    assert lines[1:3] == [f"      0 {'#' * BAR} 1.000", f"     10 {'#' * (BAR // 2)} 0.500"]


def test_two_runs_stand_below_each_other_by_name(learnt: ScriptedRun, tmp_path: Path) -> None:
    other = shutil.copytree(learnt.dir, tmp_path / "other")
    (tmp_path / "link").symlink_to(other)
    runs = map(str, (learnt.dir, tmp_path / "link", other))
    lines = in_process("compare", *runs).stdout.splitlines()
    assert lines.count(f"  {learnt.dir}") == lines.count(f"  {other}") == len(MEASURES)
    assert f"  {tmp_path / 'link'}" not in lines
