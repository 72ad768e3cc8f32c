"""`speedrunner envs check`: any environment against its promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.cards import CHECKOUT
from tests.scripted_runs import CORRIDOR, complaint, speedrunner


@pytest.mark.parametrize("options", [["babyai", "num_dists=2"], ["crafter", "env.view=all"]])
def test_ours_conform(options: list[str]) -> None:
    done = speedrunner("envs", "check", *options, "--calls", "40")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{options[0]} conforms: two tasks played with up to 40 random primitive calls each\n"
    )


def test_scienceworld_conforms_with_a_family() -> None:
    line = complaint(speedrunner("envs", "check", "scienceworld"))
    assert "option 'family' of scienceworld must be given for a split" in line
    done = speedrunner("envs", "check", "scienceworld", "family=4", "--calls", "15")
    assert (done.returncode, done.stderr) == (0, "")


def test_somebody_s_own_in_the_current_folder_and_whatever_it_prints(tmp_path: Path) -> None:
    toy = (CHECKOUT / "tests" / "toy_env.py").read_text()
    (tmp_path / "my_world.py").write_text(toy)
    done = speedrunner("envs", "check", "my_world:Corridor", "pit=-50", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("my_world:Corridor conforms: ")
    assert "walking" in done.stderr


def test_each_broken_promise_is_a_line(tmp_path: Path) -> None:
    toy = (CHECKOUT / "tests" / "toy_env.py").read_text()
    broken = toy.replace("self._task, self._position = task, 0", "self._task = task")
    broken = broken.replace('"Walk some fields along the corridor."', '" "')
    (tmp_path / "my_world.py").write_text(broken)
    done = speedrunner("envs", "check", "my_world:Corridor", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines == ["primitive 'walk': has no documentation"]
    (tmp_path / "my_world.py").write_text(broken.replace('" "', '"Walk."'))
    done = speedrunner("envs", "check", "my_world:Corridor", cwd=tmp_path)
    assert done.returncode == 1
    assert any(line.startswith("determinism: ") for line in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["babyia"], "env=babyia is not among its choices (did you mean babyai?)"),
        (["babyai", "size=3"], "there is no env.size"),
        ([CORRIDOR, "pit=deep"], "option 'pit' of tests.toy_env:Corridor must be int, not 'deep'"),
        (["nowhere:World"], "cannot import nowhere"),
    ],
)
def test_what_does_not_exist(arguments: list[str], said: str) -> None:
    assert said in complaint(speedrunner("envs", "check", *arguments))
