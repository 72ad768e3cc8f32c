"""Figures of the contributions of skills, and of libraries played by others."""

from __future__ import annotations

from speedrunner.pages.library_figures import attribution_figures, transfer_figures
from speedrunner.results.attribution import group_subjects
from speedrunner.results.coalitions import hidden_sets
from speedrunner.results.transfer import find_transfers
from tests.speedrunner.results.test_attribution import SAVED, all_runs, evaluation
from tests.speedrunner.results.test_transfer import learned, played


class TestAttribution:
    def test_each_metric_has_a_dot_with_its_interval_for_each_skill(self) -> None:
        (figure,) = attribution_figures(group_subjects(all_runs(1)))
        panels = {panel.x: panel for row in figure.rows for panel in row}
        assert [*panels] == ["score per episode", "LLM calls per episode", "output tokens per episode"]
        (line,) = panels["LLM calls per episode"].lines
        assert (line.name, line.x) == ("hidden", sorted(SAVED))
        low, high = line.ends[line.x.index("walk")] or (0.0, 0.0)
        assert low < -5 < high
        assert sorted(figure.runs) == sorted(run.path for run in all_runs(1))

    def test_shapley_values_are_a_further_series(self) -> None:
        runs = [evaluation(hidden) for hidden in hidden_sets("shapley", sorted(SAVED))]
        (figure,) = attribution_figures(group_subjects(runs))
        assert [line.name for line in figure.rows[0][0].lines] == ["hidden", "Shapley value"]

    def test_without_the_whole_library_there_is_none(self) -> None:
        assert attribution_figures(group_subjects([evaluation(["walk"])])) == []


class TestTransfer:
    def test_models_are_compared_at_equal_seeds_and_seeds_within_a_model(self) -> None:
        sources = {(model, seed): learned(model, seed) for model in "ab" for seed in (0, 1)}
        evaluations = [
            played(source, other, seed, [0.25, 0.75])
            for (model, seed), source in sources.items()
            for other in "ab"
        ]
        evaluations.append(played(sources["a", 0], "a", 1, [1.0]))
        (figure,) = transfer_figures(find_transfers([*sources.values(), *evaluations]), " --dir=there")
        models, seeds, more = (row[0] for row in figure.rows)
        assert (models.title, [line.name for line in models.lines]) == ("models, same seed", ["a", "b"])
        assert models.lines[0].x == ["a", "b"]
        assert models.lines[0].y == [0.5, 0.5]
        assert models.lines[0].notes == ["50 tokens\nn = 4"] * 2
        assert (seeds.title, more.title) == ("seeds, a", "seeds, b")
        assert [(line.name, line.x) for line in seeds.lines] == [
            ("seed 0", ["seed 0", "seed 1"]),
            ("seed 1", ["seed 1"]),
        ]
        command = "speedrunner sweep experiment=transfer env=babyai --dir=there"
        assert figure.missing == {command: ["matrix cells"]}

    def test_a_whole_matrix_misses_nothing(self) -> None:
        source = learned("a")
        (figure,) = transfer_figures(find_transfers([source, played(source, "a", 0, [1.0])]), " --dir=there")
        assert (len(figure.rows), figure.missing) == (1, {})
