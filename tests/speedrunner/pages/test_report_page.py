"""The report: its tables, and a page in one file, in which nothing does what its text says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from serving.model_configs import load_model_config
from speedrunner.pages.figures import figures
from speedrunner.pages.report_page import ROWS, Collected, collect, list_conditions, page
from speedrunner.results.claims import claim_tables, judge_claims, list_claims
from speedrunner.results.conditions import group_runs
from speedrunner.results.run_result import RunResult
from speedrunner.results.tables import make_tables
from speedrunner.results.writing import Table, csv_text
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill
from tests.speedrunner.results.summaries import checkpoint, summary
from tests.speedrunner.run_samples import process


def write_runs(folder: Path) -> None:
    """Write two seeds of two methods, and evaluations of a policy whole, in part and uncached.

    These are seven runs.
    """
    for seed in (0, 1):
        learnt(folder / f"ours{seed}", run={"seed": seed})
        react = SmallRun(folder / f"react{seed}", run={"seed": seed}, method={"name": "react"})
        react.policy(0, {})
        for point in (0, 2, 4):
            react.test(point, 0, [0.25 * seed, 0.5], [None] * (4 + seed))
            if point < 4:
                react.train(0, [None], [None])
    evaluate(folder, "whole", [1.0, 0.5])
    evaluate(folder, "hidden", [0.5, 0.25], library={"visible_last": 0})
    evaluate(folder, "uncached", [1.0, 1.0], model={"prefix_caching": False})


def evaluate(folder: Path, name: str, scores: list[float], **config: Mapping[str, object]) -> None:
    run = SmallRun(folder / name, run={"start_from": str(folder / "ours0"), "rollouts": 0}, **config)
    run.policy(0, {"home": "return walk()"})
    run.test(0, 0, scores, [None if "library" in config else skill("home", 4)] * (1 + len(config)))


def shorten(table: Table) -> str:
    """Return a table's name, columns, first and last row, with four digits."""
    rows = [
        tuple(float(f"{cell:.4g}") if isinstance(cell, float) else cell for cell in row)
        for row in (*table.rows[:1], *table.rows[1:][-1:])
    ]
    return f"{table.name}, {len(table.rows)} rows\n" + csv_text(msgspec.structs.replace(table, rows=rows))


def test_tables_have_these_columns_and_figures(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    write_runs(tmp_path)
    found = collect([tmp_path], None, lambda _: None)
    assert found.problems == []
    text = "".join(map(shorten, found.tables))
    golden("tables.txt", text.replace(str(tmp_path), "RUNS"))


def test_crafter_has_a_note_on_worlds_without_a_diamond(tmp_path: Path) -> None:
    def notes(env: str) -> list[str]:
        run = SmallRun(tmp_path / env / "run", env={"name": env, "num_dists": None})
        run.policy(0, {})
        run.test(0, 0, [0.5, 0.25], [None])
        return [note for note in collect([tmp_path / env], None, lambda _: None).notes if "diamond" in note]

    (note,) = notes("crafter")
    assert "2, 1 and 1 of the 30 test worlds of seeds 0, 1 and 2" in note
    assert notes("scienceworld") == []


def page_of(*runs: RunResult, tables: Sequence[Table] | None = None, text: str = "") -> str:
    """The page of some runs; `text` is its title and all that is said of them."""
    groups, _ = group_runs(runs)
    judged = judge_claims(list_claims(), groups)
    said = [text] * bool(text)
    found = Collected(
        runs=[*runs],
        conditions=groups,
        overview=list_conditions(groups),
        judged=judged,
        tables=claim_tables(judged) if tables is None else [*tables],
        notes=said,
        caveats=said,
        problems=said,
    )
    return page(text, found, [(figure, b"<svg/>") for figure in figures(groups)])


def whole(text: str = "Aside") -> str:
    """A page with each of its parts."""
    played = msgspec.structs.replace(process(load_model_config("tiny-random")), host=text, changes=[text])
    point = checkpoint(0, [{"score": 0.5}])
    runs = [
        replace(summary(env, method, 0, point, model=text), path=f"{method}{text}", processes=[played] * 2)
        for env, method in (("babyai", "react"), (text, text))
    ]
    groups, _ = group_runs(runs)
    tables = [
        *make_tables(groups, text),
        Table("some", text, (text,), [(text,)] * (ROWS + 1)),
    ]
    return page_of(*runs, tables=tables, text=text)


@pytest.fixture(scope="module")
def hostile() -> Elements:
    return Elements(whole(HOSTILE))


def test_no_text_becomes_markup_or_script(hostile: Elements) -> None:
    made, plain = (elements.names for elements in (hostile, Elements(whole())))
    assert made == plain
    assert hostile.scripts == []
    assert not any(name.startswith("on") for _, attributes in hostile.elements for name in attributes)


def test_control_characters_are_written_out(hostile: Elements) -> None:
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text
    assert "\\x1b[31m\\u202e" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text


def test_nothing_is_loaded_from_anywhere() -> None:
    elements = Elements(whole())
    policy = next(
        attributes for name, attributes in elements.elements if name == "meta" and "http-equiv" in attributes
    )
    assert str(policy["content"]).startswith("default-src 'none';")
    for name, attributes in elements.elements:
        assert name not in ("script", "link", "iframe", "object", "embed", "base", "form")
        assert str(attributes.get("src", "data:")).startswith("data:")
        assert str(attributes.get("href", "#")).startswith("#")


def test_links_within_the_page_lead_somewhere_and_landmarks_differ() -> None:
    elements = Elements(whole())
    ids = [str(attributes["id"]) for _, attributes in elements.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = [attributes["aria-label"] for _, attributes in elements.elements if "aria-label" in attributes]
    assert len(labels) == len(set(labels))
    links = {str(attributes["href"])[1:] for name, attributes in elements.elements if name == "a"}
    assert links <= set(ids)


def test_long_tables_say_that_there_is_more() -> None:
    assert f"The first {ROWS} of {ROWS + 1} rows" in whole()


def test_claims_have_their_verdicts_and_those_without_a_run_are_left_out() -> None:
    runs = [
        summary(
            "babyai", "react", seed, checkpoint(0, [{"score": score + seed / 100} for score in (0.68, 0.7)])
        )
        for seed in range(3)
    ]
    text = page_of(*runs)
    decided, _, undecided = text.partition('id="claims"')[2].partition("<details")
    assert '<span class="badge good">supported</span>' in decided
    teaching = msgspec.structs.replace(load_model_config("tiny-random"), caveat="It teaches.")
    grey = page_of(*(replace(run, processes=[process(teaching)], caveats=["It teaches."]) for run in runs))
    assert '<span class="badge plain">supported</span>' in grey
    assert "about 67%; It teaches.</p>" in grey
    assert "3 seeds; 1 of 1 in the paper&#39;s direction; the paper: about 67%</p>" in decided
    assert '<span class="badge plain">undecided</span>' in undecided
    assert "zombies" not in undecided.partition("</details>")[0]


def test_tables_of_the_paper_have_only_what_a_run_measured() -> None:
    columns = ("method", "paper", "ours", "missing")
    table = Table(
        "prose", "Values.", columns, [("react", 0.6, 0.7, "2 of 3 seeds"), ("opo", 0.5, None, "no run")]
    )
    empty = Table("zombies", "Values.", columns, [("react", 0.6, None, "no run")])
    text = page_of(tables=[table, empty])
    assert "2 of 3 seeds" in text
    assert "opo" not in text
    assert "zombies" not in text


def test_the_first_sentence_compares_speedrunner_with_react() -> None:
    runs = [
        summary("babyai", method, 0, checkpoint(0, [{"score": score, "output": output}] * 2))
        for method, score, output in (("asi", 0.5, 90.0), ("react", 0.5, 100.0), ("speedrunner", 0.75, 9.0))
    ]
    said = "babyai, tiny-random: speedrunner takes 91% fewer output tokens than ReAct, score +0.25"
    assert f'<p class="finding">{said}' in page_of(*runs)


def test_conditions_have_means_and_deviations_at_the_last_checkpoint() -> None:
    runs = [
        summary("babyai", "speedrunner", seed, *(checkpoint(10 * n, [each]) for n, each in enumerate(points)))
        for seed, points in enumerate(
            [
                ({"score": 0.25}, {"score": 0.75, "output": 50.0, "usd": 0.0002}),
                ({"score": 0.25}, {"score": 0.25, "output": 50.0, "usd": 0.0002}),
                ({"score": 0.25},),  # has not finished the last one
            ]
        )
    ]
    shown = page_of(*runs).partition("speedrunner</td>")[2].partition("</tr>")[0]
    assert re.findall("<td[^>]*>(.*?)</td>", shown) == [
        *("0.500 ± 0.354", "50.00 ± 0.00", *("$0.0002000 ± 0.0000000",) * 3, "90%"),
        *("tiny-random", "2", "10"),
    ]
