"""How the runs of a sweep share servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.config.grid import Grid
from speedrunner.runs.sweep_members import members, split_by_server

pytestmark = pytest.mark.process


class TestModelsThatPlayEachOther_sLibraries:
    TEXT = """
    - &source
      env: babyai
      method: asi
      model: [tiny, tiny-random]
    - <<: *source
      run.start_from: {model: [tiny, tiny-random]}
      run.rollouts: 0
    """

    def test_every_run_comes_after_its_source_with_as_few_servers_as_possible(self, tmp_path: Path) -> None:
        (tmp_path / "runs.yaml").write_text(self.TEXT)
        groups = split_by_server(members(Grid(tmp_path / "runs.yaml").runs()))
        played: list[str] = []
        for group in groups:
            assert len({each.setup.model_config.name for each in group}) == 1
            own = {each.path for each in group}
            assert all(each.run.after is None or each.run.after in {*played, *own} for each in group)
            played += own
        assert [group[0].setup.model_config.name for group in groups] == ["tiny", "tiny-random", "tiny"]
        assert len(played) == len({*played}) == 6

    def test_one_model_has_one_server(self, tmp_path: Path) -> None:
        (tmp_path / "runs.yaml").write_text(self.TEXT)
        (group,) = split_by_server(members(Grid(tmp_path / "runs.yaml", ["model=tiny-hybrid"]).runs()))
        assert len(group) == 2
