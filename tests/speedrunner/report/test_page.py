"""The page: all of it in one file, and nothing in it does what its text says."""

from __future__ import annotations

import base64
import re
from hashlib import sha256

import msgspec
import pytest

from speedrunner.report.facts import Facts, RunFacts, Shared
from speedrunner.report.figures import figures
from speedrunner.report.page import ROWS, page
from speedrunner.results.claim_tables import claim_tables
from speedrunner.results.claims import judge_claims
from speedrunner.results.conditions import group_runs
from speedrunner.results.paper_claims import CLAIMS
from speedrunner.results.tables import make_tables
from speedrunner.results.writing import Table
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.results.summaries import EMPTY, checkpoint, summary


def facts(text: str = "babyai") -> Facts:
    run = RunFacts(
        path=text, env=text, method=text, model=text, seed=0, began=text, checkpoints=[0], unfinished=[],
        terminations={"success": 1},
    )  # fmt: skip
    return Facts([run], [Shared("Hardware", text, [text])], {"success": 1}, [text])


def whole(text: str = "Aside") -> str:
    point = checkpoint(0, [{"score": 0.5}])
    runs = [summary(env, method, 0, point, model=text) for env, method in (("babyai", "react"), (text, text))]
    groups, _ = group_runs(runs)
    tables = [
        *make_tables(groups, prices=text, corrected=False),
        Table("some", text, (text,), [(text,)] * (ROWS + 1)),
    ]
    return page(text, figures(groups, text), tables, facts(text), [text], [text], [text], [text])


@pytest.fixture(scope="module")
def hostile() -> Elements:
    return Elements(whole(HOSTILE))


def test_no_text_becomes_markup_or_script(hostile: Elements) -> None:
    made, plain = (
        # A long name of a bar takes several lines, each a `text`.
        [name for name in elements.names if name not in ("text", "g")]
        for elements in (hostile, Elements(whole()))
    )
    assert made == plain
    assert "alert" not in "".join(hostile.scripts)
    assert not any(name.startswith("on") for _, attributes in hostile.elements for name in attributes)


def test_control_characters_are_written_out(hostile: Elements) -> None:
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text
    assert "\\x1b[31m\\u202e" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text


def test_names_are_text_in_figures(hostile: Elements) -> None:
    assert "svg" in hostile.names
    assert "<img src=x onerror=alert(2)>\\x1b[31m\\u202e" in hostile.text


def test_a_policy_lets_the_page_s_own_scripts_run_and_no_other() -> None:
    text = whole()
    (policy,) = (str(attrs["content"]) for _, attrs in Elements(text).elements if "http-equiv" in attrs)
    scripts = re.findall("<script>(.*?)</script>", text, re.S)
    digests = [base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(digests) == 1
    assert f"script-src 'sha256-{digests[0]}';" in policy


def test_nothing_is_loaded_from_anywhere() -> None:
    elements = Elements(whole())
    policy = next(
        attributes for name, attributes in elements.elements if name == "meta" and "http-equiv" in attributes
    )
    assert str(policy["content"]).startswith("default-src 'none';")
    for name, attributes in elements.elements:
        assert name not in ("link", "iframe", "object", "embed", "base", "form")
        assert "src" not in attributes
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


def test_a_figure_s_numbers_stand_below_it() -> None:
    assert (
        "<td>BabyAI</td><td>score</td><td>react</td>"
        '<td class="number">0</td><td class="number">0.5</td><td>–</td>'
    ) in whole()


def test_claims_without_a_run_are_counted_by_their_command() -> None:
    runs = [summary("babyai", "react", seed, checkpoint(0, [{"score": 0.7}])) for seed in range(3)]
    groups, _ = group_runs(runs)
    tables = claim_tables(judge_claims(CLAIMS, groups))
    text = page("", figures(groups), tables, facts(), [], [], [], [])
    assert "<td>babyai-start</td>" in text
    assert "<td>supported</td>" in text
    assert "<td>zombies-ours</td>" not in text
    assert "6: speedrunner sweep experiment=zombies model=tiny-random" in text


def test_combat_stands_among_the_numbers_as_what_it_is() -> None:
    library = msgspec.structs.replace(EMPTY, combat=0.25)
    point = checkpoint(0, [{"score": 0.5}], library=library)
    envs = ("crafter", "crafter-zombie_frequency0")
    groups, _ = group_runs([summary(env, "speedrunner", 0, point) for env in envs])
    text = page("", figures(groups), [], facts(), [], [], [], [])
    for measure, number in (("score", "0.5"), ("share of functions about combat", "0.25")):
        assert (
            f"<td>Crafter</td><td>{measure}</td><td>speedrunner</td>"
            f'<td>1x</td><td class="number">{number}</td>'
        ) in text
