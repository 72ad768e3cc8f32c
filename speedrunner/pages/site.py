"""All pages of the viewer by their addresses, served or written to files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from speedrunner.pages import compare_page, pages
from speedrunner.pages.calls_page import calls_page
from speedrunner.pages.comparable import Comparable
from speedrunner.pages.episode_page import episode_page, pictures_data
from speedrunner.pages.library_history import history_page
from speedrunner.pages.library_page import library_page
from speedrunner.pages.markup import templates
from speedrunner.pages.pages import Context, NotFound
from speedrunner.pages.run_page import run_page
from speedrunner.pages.run_values import RunValues
from speedrunner.pages.skills_page import skills_page
from speedrunner.pages.sleep_page import find_sleep, sleep_page
from speedrunner.pages.turns import highlight, show_calls
from speedrunner.results.pairing import CannotCompare
from speedrunner.store.discovery import DAMAGED, runs_below
from speedrunner.store.run_data import RunData, load
from speedrunner.store.run_lock import owner_of
from speedrunner.store.stored_run import RunDirectoryError

STATIC_EPISODES = 5_000
"""Maximum episodes of a run for static pages: each page reads its episode's file to the end."""

HTML, JSON, SCRIPT = "text/html; charset=utf-8", "application/json", "text/javascript; charset=utf-8"
ASSETS = {"style.css": "text/css; charset=utf-8", "view.js": SCRIPT, "playback.js": SCRIPT}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'self'"
)
"""The Content-Security-Policy of every page."""

RUN = r"runs/(?P<run>[\w.-]+)"
SIDE = r"[\w.-]+(?:@\d{1,9})?"
NUMBER = r"[1-9]\d{0,8}"
EPISODE = r"(?P<episode>train/\d{4,}|test/\d{4,}/\d{4,}|sleep/\d{4,}/again/\d{4,})"


class Answer(msgspec.Struct, frozen=True):
    """A page or file as it is sent.

    Attributes:
        problem: why there is no page, in one line; empty if there is one.
    """

    content: bytes
    kind: str = HTML
    status: int = 200
    problem: str = ""


class Site:
    """The pages of all runs in a folder and its subfolders.

    Args:
        static: whether pages are written to files: pictures are then embedded, and pages load nothing later.
    """

    def __init__(self, folder: Path, *, static: bool = False) -> None:
        self._folder = folder
        self._static = static
        self._templates = templates()
        self._templates.filters |= {
            "shown": show_calls,
            "highlighted": highlight,
            "capped": pages.cap_text,
            "turn_link": pages.turn_link,
        }
        self._values = RunValues()
        self._routes: list[tuple[re.Pattern[str], Callable[..., Answer]]] = [
            (re.compile(pattern, re.ASCII), answer)
            for pattern, answer in (
                (r"index\.html", self._runs),
                (r"(?P<asset>style\.css|view\.js|playback\.js)", self._asset),
                (r"compare\.html", self._compare),
                (r"compare-runs\.html", self._compare_runs),
                (rf"compare/(?P<first>{SIDE})/(?P<second>{SIDE})\.html", self._comparison),
                (rf"{RUN}/index\.html", self._run),
                (rf"{RUN}/episodes\.html", self._episodes),
                (rf"{RUN}/skills\.html", self._skills),
                (rf"{RUN}/library\.html", self._library_history),
                (rf"{RUN}/library/(?P<version>\d{{4,9}})\.html", self._library),
                (rf"{RUN}/sleep/(?P<number>\d{{4,9}})/(?P<page>{NUMBER})\.html", self._sleep),
                (rf"{RUN}/{EPISODE}/(?P<page>{NUMBER})\.html", self._episode),
                (
                    rf"{RUN}/{EPISODE}/calls-(?P<turn>{NUMBER})-(?P<page>{NUMBER})\.html",
                    self._calls,
                ),
                (rf"{RUN}/{EPISODE}/pictures-(?P<page>{NUMBER})\.json", self._pictures),
                (rf"{RUN}/{EPISODE}/playback-(?P<piece>{NUMBER})\.js", self._playback),
            )
        ]

    def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        """Return the page at an address, such as `runs/demo/train/0007/1.html`. If it does not exist, or a
        run's files are damaged, return a page that says so."""
        try:
            for pattern, answer in self._routes:
                if match := pattern.fullmatch(path):
                    return answer(query=query, **match.groupdict())
            raise NotFound("no such page")
        except (NotFound, CannotCompare) as error:
            return self._problem(path, 404, error)
        except DAMAGED as error:
            return self._problem(path, 500, error)

    def runs(self) -> dict[str, Path]:
        """Return all runs by their names in addresses. Raises `StorageError` if the folder does not exist."""
        found: dict[str, Path] = {}
        for path in runs_below(self._folder):
            inside = path.relative_to(self._folder).parts or (path.resolve().name,)
            found[_address(inside)] = path
        return found

    def _runs(self, query: Mapping[str, str]) -> Answer:
        return self._page("runs.jinja", 0, pages.runs_page(self.runs()))

    def _compare(self, query: Mapping[str, str]) -> Answer:
        found = Comparable(self.runs(), _address)
        if query.get("first") and query.get("second"):
            sides = (
                query[side] + (f"@{query[f'{side}_at']}" if query.get(f"{side}_at") else "")
                for side in ("first", "second")
            )
            return self._page("comparison.jinja", 0, compare_page.comparison_page(found, *sides))
        return self._page("compare.jinja", 0, compare_page.conditions_page(found))

    def _compare_runs(self, query: Mapping[str, str]) -> Answer:
        context = compare_page.conditions_page(Comparable(self.runs(), _address), by_run=True)
        return self._page("compare.jinja", 0, context)

    def _comparison(self, query: Mapping[str, str], first: str, second: str) -> Answer:
        context = compare_page.comparison_page(Comparable(self.runs(), _address), first, second)
        return self._page("comparison.jinja", 2, context)

    def _asset(self, query: Mapping[str, str], asset: str) -> Answer:
        return Answer((files(__package__) / "templates" / asset).read_bytes(), ASSETS[asset])

    def _run(self, query: Mapping[str, str], run: str) -> Answer:
        data = self._load(run)
        if owner_of(data.path / "lock") is None:
            _ = data.missing_rows  # reads the index of all episodes, so that the page names broken lines
        return self._page("run.jinja", 2, run_page(data, self._values.numbers(data)))

    def _episodes(self, query: Mapping[str, str], run: str) -> Answer:
        data = self._load(run)
        return self._page("episodes.jinja", 2, pages.episodes_page(data))

    def _skills(self, query: Mapping[str, str], run: str) -> Answer:
        data = self._load(run)
        history = self._values.history(data)
        return self._page("skills.jinja", 2, skills_page(data, history))

    def _library_history(self, query: Mapping[str, str], run: str) -> Answer:
        data = self._load(run)
        return self._page("history.jinja", 2, history_page(data, self._values.history(data)))

    def _library(self, query: Mapping[str, str], run: str, version: str) -> Answer:
        data, number = self._load(run), int(version)
        calls = self._values.library_calls(data, number)
        return self._page("library.jinja", 3, library_page(data, number, calls))

    def _sleep(self, query: Mapping[str, str], run: str, number: str, page: str) -> Answer:
        data = self._load(run)
        return self._page("sleep.jinja", 4, sleep_page(data, find_sleep(data, int(number)), int(page)))

    def _episode(self, query: Mapping[str, str], run: str, episode: str, page: str) -> Answer:
        data = self._load(run)
        context = episode_page(data, self._values.episode(data, episode), int(page), static=self._static)
        return self._page("episode.jinja", 3 + episode.count("/"), context)

    def _calls(self, query: Mapping[str, str], run: str, episode: str, turn: str, page: str) -> Answer:
        data = self._load(run)
        context = calls_page(data, self._values.episode(data, episode), int(turn), int(page))
        return self._page("calls.jinja", 3 + episode.count("/"), context)

    def _pictures(self, query: Mapping[str, str], run: str, episode: str, page: str) -> Answer:
        seen = self._values.episode(self._load(run), episode)
        return Answer(msgspec.json.encode(pictures_data(seen, int(page))), JSON)

    def _playback(self, query: Mapping[str, str], run: str, episode: str, piece: str) -> Answer:
        return Answer(self._values.episode(self._load(run), episode).piece(int(piece)), SCRIPT)

    def _load(self, slug: str) -> RunData:
        path = self.runs().get(slug)
        if path is None:
            raise NotFound(f"the folder does not have run {slug} now")
        run = load(path, skip_broken=True)
        if self._static and len(run.rows) > STATIC_EPISODES:
            raise RunDirectoryError(
                f"{path} has {len(run.rows)} episodes, but static pages can show at most"
                f" {STATIC_EPISODES}: use `speedrunner view` without --static"
            )
        return run

    def _problem(self, path: str, status: int, error: Exception) -> Answer:
        problem = " ".join(str(error).split()) or type(error).__name__
        context = {"problem": problem, "growing": pages.LATER_S}  # the problem may be temporary
        page = self._page("problem.jinja", path.count("/"), context)
        return msgspec.structs.replace(page, status=status, problem=problem)

    def _page(self, template: str, depth: int, context: Context) -> Answer:
        made: dict[str, Any] = {"root": "../" * depth, "static": self._static, "policy": POLICY}
        text = self._templates.get_template(template).render(made | {"growing": 0} | context)
        return Answer(text.encode())


def _address(parts: tuple[str, ...]) -> str:
    """Return a name for addresses, which depends on nothing else."""
    slug = re.sub(r"[^\w.-]|^\.+", "-", "-".join(parts), flags=re.ASCII)
    if (slug,) != parts:
        slug += f"-{hashlib.sha256('/'.join(parts).encode(errors='surrogateescape')).hexdigest()[:8]}"
    return slug
