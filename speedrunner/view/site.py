"""All pages of the viewer by their addresses, served or written to files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from speedrunner.experiments.damage import DAMAGED, damage
from speedrunner.experiments.plans import runs_below
from speedrunner.markup import templates
from speedrunner.statistics.skills import SkillHistory, skill_history
from speedrunner.store.data import RunData, load
from speedrunner.store.records import Trajectory
from speedrunner.view import pages
from speedrunner.view.pages import Context, NotFound
from speedrunner.view.search import InvalidQuery
from speedrunner.view.turns import shown
from speedrunner.view.worlds import snapshots

HTML, JSON = "text/html; charset=utf-8", "application/json"
ASSETS = {"view.css": "text/css; charset=utf-8", "view.js": "text/javascript; charset=utf-8"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'self'"
)
"""The Content-Security-Policy of every page."""

RUN = r"runs/(?P<run>[\w.-]+)"
EPISODE = r"(?P<episode>train/\d{4,}|test/\d{4,}/\d{4,}|sleep/\d{4,}/again/\d{4,})"


class Answer(msgspec.Struct, frozen=True):
    """A page or file as it is sent."""

    content: bytes
    kind: str = HTML
    status: int = 200


class Site:
    """The pages of all runs in and below a folder.

    Args:
        static: pages that are files: pictures stand in them, and nothing is asked for later.
    """

    def __init__(self, folder: Path, *, static: bool = False) -> None:
        self._folder = folder
        self._static = static
        self._templates = templates(f"{__package__}.templates")
        self._templates.filters |= {"shown": shown, "highlighted": pages.highlighted}
        self._found = lru_cache(maxsize=4)(_trajectory)
        self._worlds = lru_cache(maxsize=4)(_world)
        self._histories = lru_cache(maxsize=4)(_history)
        self._routes: list[tuple[re.Pattern[str], Callable[..., Answer]]] = [
            (re.compile(pattern), answer)
            for pattern, answer in (
                (r"index\.html", self._runs),
                (r"(?P<asset>view\.css|view\.js)", self._asset),
                (rf"{RUN}/index\.html", self._run),
                (rf"{RUN}/episodes\.html", self._episodes),
                (rf"{RUN}/skills\.html", self._skills),
                (rf"{RUN}/library/(?P<version>\d{{4,}})\.html", self._library),
                (rf"{RUN}/sleep/(?P<number>\d{{4,}})/(?P<page>[1-9]\d*)\.html", self._sleep),
                (rf"{RUN}/{EPISODE}/(?P<page>[1-9]\d*)\.html", self._episode),
                (rf"{RUN}/{EPISODE}/pictures-(?P<page>[1-9]\d*)\.json", self._pictures),
            )
        ]

    def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        """The page at an address, such as `runs/demo/train/0007/1.html`; where there is none, or a run's
        files are damaged, one that says so."""
        try:
            for pattern, answer in self._routes:
                if match := pattern.fullmatch(path):
                    return answer(query=query, **match.groupdict())
            raise NotFound("there is no such page")
        except NotFound as error:
            return self._problem(path, 404, error)
        except InvalidQuery as error:
            return self._problem(path, 400, error)
        except DAMAGED as error:
            return self._problem(path, 500, error)

    def runs(self) -> dict[str, Path]:
        """All runs by the names that they have in addresses. Raises `StorageError`: there is no folder."""
        found: dict[str, Path] = {}
        for path in runs_below(self._folder):
            inside = path.relative_to(self._folder).parts or (path.resolve().name,)
            slug = re.sub(r"[^\w.-]|^\.+", "-", "--".join(inside), flags=re.ASCII) or "run"
            while slug in found:
                slug += "-"
            found[slug] = path
        return found

    def _runs(self, query: Mapping[str, str]) -> Answer:
        return self._page("runs.jinja", 0, pages.runs_page(self.runs()) | {"title": "Runs"})

    def _asset(self, query: Mapping[str, str], asset: str) -> Answer:
        content = (files(__package__) / "templates" / asset).read_bytes()
        return Answer(content, ASSETS[asset])

    def _run(self, query: Mapping[str, str], run: str) -> Answer:
        return self._page("run.jinja", 2, pages.run_page(self._load(run)))

    def _episodes(self, query: Mapping[str, str], run: str) -> Answer:
        return self._page("episodes.jinja", 2, pages.episodes_page(self._load(run), query))

    def _skills(self, query: Mapping[str, str], run: str) -> Answer:
        data = self._load(run)
        history = self._histories(data.path, len(data.rows), len(data.sleeps))
        return self._page("skills.jinja", 2, pages.skills_page(data, history))

    def _library(self, query: Mapping[str, str], run: str, version: str) -> Answer:
        return self._page("library.jinja", 3, pages.library_page(self._load(run), int(version)))

    def _sleep(self, query: Mapping[str, str], run: str, number: str, page: str) -> Answer:
        data = self._load(run)
        context = pages.sleep_page(data, pages.find_sleep(data, int(number)), int(page))
        return self._page("sleep.jinja", 4, context)

    def _episode(self, query: Mapping[str, str], run: str, episode: str, page: str) -> Answer:
        data = self._load(run)
        context = pages.episode_page(data, self._found(*_named(data, episode)), int(page))
        drawn = self._drawn(data, episode, int(page)) if self._static and context["pictured"] else {}
        return self._page("episode.jinja", 3 + episode.count("/"), context | {"pictures": drawn})

    def _pictures(self, query: Mapping[str, str], run: str, episode: str, page: str) -> Answer:
        drawn = self._drawn(self._load(run), episode, int(page))
        return Answer(msgspec.json.encode({turn: str(each) for turn, each in drawn.items()}), JSON)

    def _drawn(self, run: RunData, episode: str, page: int) -> dict[int, Markup]:
        named = _named(run, episode)
        return pages.pictures(self._found(*named), self._worlds(*named), page)

    def _load(self, slug: str) -> RunData:
        path = self.runs().get(slug)
        if path is None:
            raise NotFound(f"there is no run {slug} (any more)")
        return load(path)

    def _problem(self, path: str, status: int, error: Exception) -> Answer:
        told = damage(self._folder, error) if status == 500 else str(error)
        return self._page("problem.jinja", path.count("/"), {"problem": told}, status=status)

    def _page(self, template: str, depth: int, context: Context, *, status: int = 200) -> Answer:
        made: dict[str, Any] = {"root": "../" * depth, "static": self._static, "policy": POLICY}
        text = self._templates.get_template(template).render(made | {"growing": False} | context)
        return Answer(text.encode("utf-8", "replace"), status=status)


def _named(run: RunData, episode: str) -> tuple[Path, str, int]:
    """What an attempt is kept by: what is recorded of one never changes."""
    return run.path, episode, next((row.attempt for row in run.rows if row.episode == episode), 0)


def _trajectory(path: Path, episode: str, attempt: int) -> Trajectory:
    return pages.find_episode(load(path), episode)


def _world(path: Path, episode: str, attempt: int) -> dict[int, dict[str, Any]]:
    run = load(path)
    return snapshots(run, pages.find_episode(run, episode))


def _history(path: Path, episodes: int, sleeps: int) -> SkillHistory:
    """Of so many; all of them are read."""
    return skill_history(load(path))
