"""All pages: what they show, where their links lead, and that nothing in a run can steer them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import urldefrag, urlsplit

import msgspec
import pytest
from markupsafe import Markup

from envs import Outcome
from speedrunner.pages.html_parts import TURNS, Share, show_cell
from speedrunner.pages.site import HTML, Site, linked_pages, write_pages
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import CallNode, Policy, Termination
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import Elements
from tests.scripted_runs import ScriptedRun
from tests.speedrunner.pages.runs import CONFIG, append, break_line, hostile_run, long_run
from tests.speedrunner.results.small_runs import learnt as write_learnt
from tests.speedrunner.run_samples import trajectory


def page(site: Site, path: str) -> str:
    found = site.answer(path)
    assert found.status == 200, found.content
    return found.content.decode()


def problem(site: Site, path: str) -> tuple[int, str]:
    found = site.answer(path)
    text = found.content.decode()
    return found.status, text.partition('class="problem">')[2].partition("<")[0]


@pytest.fixture(scope="module")
def site(learnt: ScriptedRun) -> Site:
    return Site(learnt.dir)


@pytest.fixture(scope="module")
def base(learnt: ScriptedRun) -> str:
    return f"runs/{learnt.dir.name}"


def test_every_link_of_every_page_leads_to_a_page_and_a_place_on_it(site: Site) -> None:
    found = {path: answer for path, answer in linked_pages(site) if answer.kind == HTML}
    assert {answer.status for answer in found.values()} == {200}
    ids = {path: Elements(answer.content.decode()).ids for path, answer in found.items()}
    assert len(ids) > 10
    for path in ids:
        for link in Elements(page(site, path)).links:
            address, place = urldefrag(urlsplit(link)._replace(query="").geturl())
            target = normpath(join(dirname(path), address)) if address else path
            assert target in ids, (path, link)
            assert not place or place in ids[target], (path, link)
        assert len(ids[path]) == len(set(ids[path])), path


def test_a_run_has_headline_numbers_and_all_columns_of_its_checkpoints(
    site: Site, base: str, learnt: ScriptedRun
) -> None:
    text = page(site, f"{base}/index.html")
    (tiles,) = re.findall('<ul class="tiles".*?</ul>', text, re.S)
    assert re.findall('class="label">(.*?)<', tiles) == [
        *("Score", "Output tokens", "USD per episode", "Prompt from the cache"),
        *("Skills", "USD spent on training"),
    ]
    (table,) = re.findall('<table class="checkpoints">.*?</table>', text, re.S)
    for heading in ("score", "LLM calls", "actions", "cached share", "public skills"):
        assert f'scope="col" class="number">{heading}</th>' in table
    assert table.count("<tr>") == 1 + len(learnt.data.checkpoints)
    assert 'alt="Score over training rollouts"' in text
    assert "write to_flag" in text


def test_a_badge_has_the_status_of_a_run(site: Site, base: str, tmp_path: Path) -> None:
    assert '<span class="badge good">finished</span>' in page(site, f"{base}/index.html")
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        assert '<span class="badge plain">running</span>' in page(Site(tmp_path), "runs/run/index.html")
    assert '<span class="badge warn">not started</span>' in page(Site(tmp_path), "index.html")
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        append(run, trajectory())
    assert '<span class="badge warn">stopped</span>' in page(Site(tmp_path), "runs/run/index.html")


def test_a_run_without_a_readable_ledger_shows_its_scores_and_says_why_costs_are_unknown(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    shutil.copytree(learnt.dir, tmp_path / "run")
    (tmp_path / "run/requests.jsonl").unlink()
    (tmp_path / "run/state.json").write_text('{"format": 3, "secret": "s"}')
    text = page(Site(tmp_path), "runs/run/index.html")
    assert "Costs are unknown: " in text
    assert "is requests.jsonl missing?" in text
    assert '<td class="number">1</td>' in text


def test_scores_have_the_share_of_test_episodes_that_each_limit_ended(tmp_path: Path) -> None:
    with RunDirectory.open_for_writing(tmp_path / "runs/run") as run:
        run.write_config(CONFIG.replace("test_episodes: 30", "test_episodes: 4"))
        run.write_policy(Policy(version=0))
        limits = Termination.CALL_LIMIT, Termination.CALL_LIMIT, Termination.CONTEXT_OVERFLOW
        for number, termination in enumerate((*limits, Termination.SUBMITTED)):
            key = f"test/0000/{number:04d}"
            played = trajectory(key, termination=termination, outcome=Outcome(0.5, False, {}))
            run.append_trajectory("test", 0, played)
            run.append_episode(summarize_episode(played, "test", 0))
    site = Site(tmp_path / "runs")
    shown = page(site, "runs/run/index.html")
    assert '<td class="number">75%</td>' in shown
    listed = page(site, "index.html")
    assert '<td class="number">0.500</td>' in listed
    config = tmp_path / "runs/run/config.yaml"
    config.write_text(config.read_text().replace("test_episodes: 4", "test_episodes: 5"))
    assert '<td class="text">4/5</td>' in page(site, "runs/run/index.html")
    listed = page(site, "index.html")
    assert ">4/5 at 0</td>" in listed
    assert "0.500" not in listed


def test_a_turn_has_what_was_told_written_called_and_what_it_took(
    site: Site, base: str, learnt: ScriptedRun
) -> None:
    text = page(site, f"{base}/test/0002/0000/1.html")
    (turn,) = learnt.data.trajectory("test/2/0").turns
    seen = "You are at field 0. The flag is at field 7."
    assert f'<code>look()</code> <span class="came">→ {seen}</span>' in text
    assert "<code>walk(steps=7)</code>" in text
    assert 'href="../../../library/0001.html#skill-to_flag"' in text
    assert f"{turn.usage.uncached:,} uncached, {turn.usage.cached:,} cached, 0 reasoning" in text
    assert turn.messages[1].content.splitlines()[0] in text


def test_a_library_shows_its_source_what_changed_and_what_calls_what(site: Site, base: str) -> None:
    text = page(site, f"{base}/library/0001.html")
    plain = Elements(text).text
    assert "def to_flag() -> str:" in plain
    assert "+def to_flag() -> str:" in plain
    assert 'href="#skill-to_flag"' in text
    assert "The library is empty" in page(site, f"{base}/library/0000.html")


def test_the_index_has_each_episode_with_the_skills_that_ran_in_it(site: Site, base: str) -> None:
    text = page(site, f"{base}/episodes.html")
    row = text.partition(">test/0002/0000</a>")[2].partition("</tr>")[0]
    assert ">to_flag</td>" in row


def test_long_episodes_are_spread_over_pages(tmp_path: Path) -> None:
    site = Site(long_run(tmp_path / "run", 2 * TURNS + 1))
    last = page(site, "runs/run/train/0000/3.html")
    assert Elements(last).ids.count(f"turn-{2 * TURNS + 1}") == 1
    assert last.count('<article class="turn" id=') == 1
    assert problem(site, "runs/run/train/0000/4.html") == (404, "it has 3 pages")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(hostile_run(tmp_path_factory.mktemp("hostile") / "run"))


class TestHostileText:
    def test_it_becomes_neither_markup_nor_script(self, hostile: Site) -> None:
        for path, answer in linked_pages(hostile):
            if answer.kind != HTML:
                continue
            found = Elements(answer.content.decode())
            sources = [own["src"] or "" for name, own in found.elements if name == "script" and "src" in own]
            assert {source.rpartition("/")[2] for source in sources} <= {"view.js", "playback.js"}, path
            assert all(msgspec.json.decode(script) for script in found.scripts if script.strip()), path
            images = [own["src"] for name, own in found.elements if name == "img" and "src" in own]
            assert all(str(image).startswith("data:image/svg+xml;base64,") for image in images), path
            attributes = [name for _, own in found.elements for name in own]
            assert not any(name.startswith("on") or name == "style" for name in attributes), path

    def test_control_characters_are_written_out(self, hostile: Site) -> None:
        for path in ("train/0000/1", "sleep/0001/1", "library/0001", "episodes", "index"):
            text = page(hostile, f"runs/run/{path}.html")
            assert "\x1b" not in text
            assert "\u202e" not in text
        shown = Elements(page(hostile, "runs/run/train/0000/1.html")).text
        assert "\\x1b[31m\\u202e{{ 7 * 7 }}" in shown
        assert shown.count("alert(1)") >= 8


class TestBadInput:
    @pytest.mark.parametrize(
        "path",
        [
            *("", "nope", "../config.yaml", "runs/run/config.yaml", "runs/../run/index.html", "view.py"),
            *("runs/run/train/7/1.html", "runs/run/train/0007/1.html", "runs/run/library/0009.html"),
            *("runs/run/sleep/0009/1.html", "runs/run/train/0000/0.html", "runs/none/index.html"),
        ],
    )
    def test_an_address_of_nothing_says_so(self, tmp_path: Path, path: str) -> None:
        status, told = problem(Site(long_run(tmp_path / "run", 1)), path)
        assert status == 404
        assert told

    def test_a_damaged_run_is_told_in_its_row_and_the_others_are_shown(self, tmp_path: Path) -> None:
        long_run(tmp_path / "good", 1)
        (long_run(tmp_path / "bad", 1) / "episodes.jsonl").write_text('{"format": 3}\n{}\n')
        site = Site(tmp_path)
        text = page(site, "index.html")
        assert 'href="runs/good/index.html"' in text
        assert "is not a valid EpisodeRow" in text
        status, told = problem(site, "runs/bad/index.html")
        assert (status, told.count("\n")) == (500, 0)
        assert "episodes.jsonl, line 1" in told

    def test_a_broken_line_is_named_by_the_pages_that_need_it(self, tmp_path: Path) -> None:
        run = write_learnt(tmp_path / "run")
        break_line(run.path / "trajectories/batch_0001.jsonl")
        site = Site(tmp_path)
        failed = [path for path, answer in linked_pages(site) if answer.status != 200]
        assert "runs/run/episodes.html" in failed
        assert "runs/run/index.html" not in failed
        assert all("batch_0001.jsonl, line" in problem(site, path)[1] for path in failed)

    def test_a_run_that_is_deleted_while_it_is_viewed_is_not_there_any_more(self, tmp_path: Path) -> None:
        site = Site(tmp_path)
        shutil.rmtree(long_run(tmp_path / "run", 1))
        assert problem(site, "runs/run/index.html") == (404, "the folder does not have run run now")
        assert "There is no run here" in page(site, "index.html")
        tmp_path.rmdir()
        assert problem(site, "index.html")[0] == 500

    def test_folders_with_odd_names_have_addresses_of_their_own(self, tmp_path: Path) -> None:
        for name in ("a b", "a-b", "a<b>", "..x", "a/b", "日本", "中文"):
            long_run(tmp_path / name, 1)
        site = Site(tmp_path)
        slugs = [*site.runs()]
        assert len(slugs) == 7
        for slug in slugs:
            assert "turn-1" in page(site, f"runs/{slug}/train/0000/1.html")


def test_an_episode_shows_its_result_and_its_first_error(tmp_path: Path) -> None:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        lost = {"termination": Termination.CALL_LIMIT, "outcome": Outcome(0.25, False, {})}
        append(run, trajectory())
        append(run, trajectory("train/0001", **lost))
        append(
            run, trajectory("train/0002", termination=Termination.ENGINE_ERROR, outcome=None, error="gone")
        )
        node = CallNode("noop", "primitive", {}, error="ActionLimitReached: stopped")
        turn = msgspec.structs.replace(trajectory().turns[0], executed=node)
        append(run, trajectory("train/0003", turns=[turn], **lost))
    site = Site(tmp_path)
    won, failed, broken, ended = (page(site, f"runs/run/train/{number:04d}/1.html") for number in range(4))
    assert '<span class="badge good">success, score 1</span>' in won
    assert '<span class="badge bad">call limit, score 0.25</span>' in failed
    assert '<span class="badge warn">engine error</span>' in broken
    assert "Ended by call_limit after 2 LLM calls" in Elements(failed).text
    assert '<a href="1.html#turn-2">First error: turn 2</a>' in failed
    assert "First error" not in ended
    assert 'data-key="p" href="../../train/0000/1.html"' in failed
    assert 'data-key="n" href="../../train/0002/1.html"' in failed


def test_a_page_plays_the_primitives_of_its_turns(tmp_path: Path) -> None:
    turns = [trajectory().turns[0]] * (TURNS + 1)
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        append(run, trajectory(turns=turns))
    site = Site(tmp_path)
    for number, first, count in ((1, 1, 3 * TURNS), (2, TURNS + 1, 3)):
        scripts = Elements(page(site, f"runs/run/train/0000/{number}.html")).scripts
        (data,) = (script for script in scripts if script.strip())
        positions = msgspec.json.decode(data)["positions"]
        assert (positions[0]["turn"], len(positions)) == (first, 1 + count)


class TestFiles:
    def test_pages_that_could_not_be_made_are_named_and_nothing_leads_out_of_the_folder(
        self, tmp_path: Path
    ) -> None:
        run, out = long_run(tmp_path / "run", 1), tmp_path / "deep" / "out"
        with (run / "episodes.jsonl").open("a") as rows:
            line = (run / "episodes.jsonl").read_text()
            rows.write(line.replace("train/0000", "../../../stray"))
            rows.write(line.replace("train/0000", "javascript:alert(1)//"))
        count, problems = write_pages(Site(run), out, lambda line: None)
        assert count > 5
        assert len(problems) == 2
        assert [path for path in tmp_path.rglob("*") if "stray" in path.name] == []
        assert 'href="javascript' not in (out / "runs/run/episodes.html").read_text()


@pytest.mark.parametrize(
    ("cell", "column", "text"),
    [
        (None, "", "–"),
        (0.000212345, "cost_usd", "$0.0002123"),
        (12345.6, "tokens", "12,346"),
        (0.5, "score", "0.500"),
        (Share(0.894), "score", "89%"),
        (0.00000858, "usd", "$0.000008580"),
        (1234, "episodes", "1,234"),
        (Markup("<b>"), "", "<b>"),
    ],
)
def test_a_cell_has_four_digits(cell: object, column: str, text: str) -> None:
    assert show_cell(cell, column) == text
