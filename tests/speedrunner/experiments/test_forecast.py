"""What runs will take: means times counts, an interval that holds what it says, and only of what is alike."""

from __future__ import annotations

import json
import random
import re
import shutil
from math import sqrt
from pathlib import Path

import msgspec
import pandas
import pytest

from speedrunner.config.compose import compose
from speedrunner.config.names import condition_name
from speedrunner.experiments.forecast import COLUMNS, NothingMeasured, budgets_of, forecast, read_measurements
from speedrunner.results.forecast_records import (
    FORECASTS,
    MEASURES,
    Forecast,
    measured_amounts,
    read_forecasts,
    total,
)
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from speedrunner.runs.setup import Setup, set_up
from speedrunner.store.run_data import load
from tests.scripted_runs import (
    CORRIDOR,
    ScriptedRun,
    complaint,
    in_process,
)

pytestmark = pytest.mark.process

PLAN = ("env=babyai", "run.rollouts=10", "run.sleep_every=5", "run.eval_every=10", "run.test_episodes=3")
"""10 training episodes, 2 x 3 test episodes, 2 sleeps."""


def planned(*overrides: str) -> Setup:
    return set_up(compose([*PLAN, *overrides]))


def amounts(value: float) -> dict[str, float]:
    return dict.fromkeys(MEASURES, value)


def known(setup: Setup, train: list[float], test: list[float], sleep: list[float]) -> pandas.DataFrame:
    """Return measured episodes and sleeps, every measure of each of which is one number."""
    own, budgets = condition_name(setup.config), budgets_of(setup.config)
    kinds = {"train": train, "test": test, "sleep": sleep}
    rows = [
        (own, budgets, kind, *[each] * len(MEASURES)) for kind, values in kinds.items() for each in values
    ]
    return pandas.DataFrame(rows, columns=COLUMNS[: 3 + len(MEASURES)]).reindex(columns=COLUMNS)


class TestTheSum:
    def test_is_the_means_times_how_many_are_planned(self) -> None:
        (found,) = forecast([planned()], known(planned(), [1.0, 3.0], [10.0], [100.0, 100.0]))
        assert found.counts == {"train": 10, "test": 6, "sleep": 2}
        assert found.mean == amounts(10 * 2.0 + 6 * 10.0 + 2 * 100.0)

    def test_spreads_as_so_many_draws_around_an_estimated_mean(self) -> None:
        (found,) = forecast([planned()], known(planned(), [1.0, 3.0], [10.0], [100.0, 100.0]))
        # The variance of 1 and 3 is 2; ten of them around the mean of two; the others do not vary.
        assert found.sd["usd"] == pytest.approx(sqrt(2.0 * (10 + 10**2 / 2)))

    def test_of_seeds_of_one_setting_errs_as_one_and_of_two_settings_by_chance(self) -> None:
        one, two = planned(), planned("method=asi")
        there = pandas.concat(known(each, [1.0, 3.0], [1.0] * 2, [1.0] * 2) for each in (one, two))
        (first, second) = forecast([one, planned("run.seed=1")], there)
        (third,) = forecast([two], there)
        half = {
            count: (found.high - found.mean)
            for count, found in enumerate(
                (total(each, "usd") for each in ([first], [first, second], [first, third])), start=1
            )
            if found is not None and found.high is not None
        }
        assert half[1] == pytest.approx(6.3138 * first.sd["usd"], rel=1e-4)  # one degree of freedom
        assert half[2] == pytest.approx(2 * half[1])
        assert half[3] == pytest.approx(sqrt(2) * half[1])

    def test_of_a_measure_that_is_not_known_of_all_is_none(self) -> None:
        there = known(planned(), [1.0], [1.0], [1.0])
        there.loc[there["kind"] == "sleep", "engine_s"] = float("nan")
        (found,) = forecast([planned()], there)
        assert total([found], "engine_s") is None
        assert total([found], "usd") is not None

    def test_holds_nine_of_ten_runs_of_the_same_kind(self) -> None:
        """Episodes that vary by chance alone, 300 times measured and played."""
        random.seed(1)
        inside, setup = 0, planned()
        for _ in range(300):
            there = known(setup, *([random.gauss(100, 20) for _ in range(12)] for _ in range(3)))
            (found,) = forecast([setup], there)
            expected = total([found], "usd")
            played = sum(random.gauss(100, 20) for _ in range(10 + 6 + 2))
            assert expected is not None
            assert expected.low is not None
            assert expected.high is not None
            inside += expected.low <= played <= expected.high
        assert 0.84 < inside / 300 < 0.96


class TestWhatIsAlike:
    def test_a_variant_is_taken_from_another_one_of_its_method_and_says_so(self) -> None:
        there = known(planned(), [1.0], [1.0], [1.0])
        own, variant = forecast([planned(), planned("method.interpreter=off")], there)
        assert own.source is None
        assert variant.source == condition_name(planned().config)
        assert variant.mean == own.mean

    @pytest.mark.parametrize(
        "other",
        [
            "method=asi",
            "env.num_dists=2",
            "model=tiny-hybrid",
            "model.actor.max_calls=3",
            "run.max_actions=9",
        ],
    )
    def test_another_method_world_model_or_budget_is_not(self, other: str) -> None:
        there = known(planned(), [1.0], [1.0], [1.0])
        with pytest.raises(
            NothingMeasured, match=r"measured: babyai speedrunner tiny-random.*scale=pilot"
        ) as error:
            forecast([planned(other)], there)
        assert "\n" not in str(error.value)

    def test_what_needs_no_sleep_needs_none_measured(self) -> None:
        there = known(planned("method=react"), [], [2.0], [])
        (found,) = forecast([planned("method=react")], there)
        assert found.mean["requests"] == 6 * 2.0


def test_a_run_of_the_paper_s_size_makes_few_files() -> None:
    paper = set_up(compose(["env=babyai"]))
    (found,) = forecast([paper], known(paper, [1.0], [1.0], [1.0]))
    assert found.counts == {"train": 200, "test": 150, "sleep": 20}
    assert found.files == 137  # where quotas count files, 500 are to be enough


@pytest.fixture
def played(learnt: ScriptedRun, tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder with a run of 4 rollouts, 2 sleeps and 6 test episodes, and its settings."""
    shutil.copytree(learnt.dir, tmp_path / "measured" / "one")
    return tmp_path / "measured", [*learnt.settings, *learnt.arguments]


def test_a_run_like_one_that_was_measured_is_expected_to_take_the_same(
    played: tuple[Path, list[str]],
) -> None:
    folder, given = played
    found = forecast([set_up(compose(given))], read_measurements([folder])[0])
    run = load(folder / "one")
    (costs,) = run_costs([run], [price_book(run)])
    taken = measured_amounts(run, costs)
    assert found[0].measured == {"train": 4, "test": 6, "sleep": 2}
    assert set(taken) == set(MEASURES)
    assert found[0].mean == {name: pytest.approx(amount) for name, amount in taken.items()}
    ledger = [row for row in run.requests if row.usage is not None]
    assert taken["requests"] == pytest.approx(len(run.requests))
    assert taken["output"] == pytest.approx(sum(row.usage.completion for row in ledger if row.usage))
    there = [file for file in (folder / "one").rglob("*") if file.is_file()]
    assert taken["bytes"] == pytest.approx(sum(file.stat().st_size for file in there))
    assert found[0].files == len([file for file in there if file.name != "server.log"])


def test_the_command_prints_settings_their_sum_and_its_interval_and_keeps_the_forecast(
    played: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, given = played
    (tmp_path / "runs.yaml").write_text("- method: speedrunner\n  run.seed: [0, 1]\n- method: asi\n")
    command = ("forecast", str(tmp_path / "runs.yaml"), *given)
    options = ("--from", str(folder), "--dir", str(tmp_path / "planned"))
    done = in_process(*command, *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("runs", "episodes", "sleeps", "requests", "uncached", "cached", "output"),
        *("engine", "h", "USD", "bytes", "files"),
    ]
    assert [line.split()[0] for line in lines[1:5]] == [CORRIDOR.replace(":", "_"), "all", "low", "high"]
    assert lines[2].split()[1:4] == ["2", "20", "4"]
    assert "Not measured and not in the sum: 1 runs" in done.stdout
    assert lines[-2].startswith(f"speedrunner sweep {tmp_path / 'runs.yaml'} env=")
    assert lines[-2].endswith(" scale=pilot run.seed=0")
    assert re.fullmatch(r"`speedrunner submit` makes 1 job .* up to \d+ cores and \d+ GB for .*", lines[-1])
    content = json.loads(in_process(*command, *options, "--json").stdout)
    runs = msgspec.convert(content["runs"], list[Forecast])
    assert [Path(each.dir).name for each in runs] * 2 == [
        each.dir for each in read_forecasts(tmp_path / "planned")
    ]
    assert len((tmp_path / "planned" / FORECASTS).read_text().splitlines()) == 4


def test_without_any_run_it_says_to_play_a_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = in_process("forecast", "experiment=demo")
    assert done.returncode == 1
    assert "play a pilot first, such as scale=pilot" in done.stderr


def test_a_damaged_run_is_named_and_the_others_are_measured(
    played: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, given = played
    shutil.copytree(folder / "one", tmp_path / "runs" / "one")
    broken = shutil.copytree(folder / "one", tmp_path / "runs" / "broken")
    (broken / "requests.jsonl").write_text("{}\n{}\n")
    (tmp_path / "runs.yaml").write_text("- method=speedrunner\n")
    command = ("forecast", str(tmp_path / "runs.yaml"), *given, f"--dir={tmp_path / 'planned'}")
    done = in_process(*command, "--from", str(tmp_path / "runs"))
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"left out: {broken}/requests.jsonl, line 1")
    assert done.stdout.splitlines()[2].split()[:2] == ["all", "1"]
    shutil.rmtree(tmp_path / "runs" / "one")
    assert f"{broken}/requests.jsonl" in complaint(in_process(*command, "--from", str(tmp_path / "runs")))


def test_without_anything_measured_the_command_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "runs.yaml").write_text("- method=react\n")
    done = in_process("forecast", str(tmp_path / "runs.yaml"), "--from", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: no measured run has the condition and episode budgets of any of these 1 runs (measured: none)"
    )
