"""All pages of the viewer by their addresses, written to files or served to this machine."""

from __future__ import annotations

import hashlib
import hmac
import html
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath
from socketserver import TCPServer, ThreadingTCPServer
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from speedrunner.pages import library_pages
from speedrunner.pages.episode_page import episode_page, episodes_page
from speedrunner.pages.html_parts import Context, NotFound, render
from speedrunner.pages.run_page import run_page, runs_page
from speedrunner.store.discovery import DAMAGED, describe, runs_below
from speedrunner.store.files import OUTPUT_MODE, explain_errors, whole_folder
from speedrunner.store.run_data import RunData, load

HTML, SCRIPT = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
ASSETS = {"style.css": "text/css; charset=utf-8", "view.js": SCRIPT, "playback.js": SCRIPT}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'none';"
    " base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of every page."""

RUN = r"runs/(?P<run>[\w.-]+)"
NUMBER = r"[1-9]\d{0,8}"
EPISODE = rf"{RUN}/(?P<episode>train/\d{{4,}}|test/\d{{4,}}/\d{{4,}}|sleep/\d{{4,}}/again/\d{{4,}})"

RUN_PAGES: tuple[tuple[str, str, Callable[..., Context]], ...] = (
    (rf"{RUN}/index\.html", "run.jinja", run_page),
    (rf"{RUN}/episodes\.html", "episodes.jinja", episodes_page),
    (rf"{RUN}/skills\.html", "skills.jinja", library_pages.skills_page),
    (rf"{RUN}/library/(?P<version>\d{{4,9}})\.html", "library.jinja", library_pages.version_page),
    (rf"{RUN}/sleep/(?P<number>\d{{4,9}})/(?P<page>{NUMBER})\.html", "sleep.jinja", library_pages.sleep_page),
    (rf"{EPISODE}/(?P<page>{NUMBER})\.html", "episode.jinja", episode_page),
)
"""Addresses, templates, and functions of a run and the address's other parts, which return the content."""

LINK = re.compile(rb' href="([^"?#]+)')
"""Addresses of pages."""


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
    """The pages of all runs in a folder and its subfolders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: Callable[[Path], RunData] = load
        self._runs: dict[str, Path] = {}

    def answer(self, path: str) -> Answer:
        """Return the page at an address, such as `runs/demo/train/0007/1.html`. If it does not exist, or a
        run's files are damaged, return a page that says so."""
        try:
            return self._answer(path)
        except NotFound as error:
            return self._problem(path, 404, error)
        except DAMAGED as error:
            return self._problem(path, 500, error)

    def freeze(self) -> None:
        """Find the runs once and open each once, for pages that are written one after another."""
        self._runs, self._open = self.runs(), lru_cache(maxsize=1)(load)

    def runs(self) -> dict[str, Path]:
        """Return all runs by their names in addresses. Raises `StorageError` if the folder does not exist."""
        runs = dict(self._runs)
        if runs:
            return runs
        for path in runs_below(self._folder):
            inside = path.relative_to(self._folder).parts or (path.resolve().name,)
            runs[make_address(inside)] = path
        return runs

    def _answer(self, path: str) -> Answer:
        if path in ASSETS:
            return Answer((files(__package__) / "templates" / path).read_bytes(), ASSETS[path])
        if path == "index.html":
            return self._page(path, "runs.jinja", runs_page(self.runs()))
        for pattern, template, make in RUN_PAGES:
            if match := re.fullmatch(pattern, path, re.ASCII):
                run, *parts = match.groups()
                numbers = [int(part) if part.isdigit() else part for part in parts]
                return self._page(path, template, make(self._load(run), *numbers))
        raise NotFound("no such page")

    def _load(self, slug: str) -> RunData:
        path = self.runs().get(slug)
        if path is None:
            raise NotFound(f"the folder does not have run {slug} now")
        return self._open(path)

    def _problem(self, path: str, status: int, error: Exception) -> Answer:
        problem = describe(error)
        page = self._page(path, "problem.jinja", {"problem": problem})
        return msgspec.structs.replace(page, status=status, problem=problem)

    def _page(self, path: str, template: str, context: Context) -> Answer:
        made: dict[str, Any] = {"root": "../" * path.count("/"), "policy": POLICY}
        return Answer(render(template, made | context).encode())


def make_address(parts: tuple[str, ...]) -> str:
    """Return a name for addresses, which depends on nothing else."""
    slug = re.sub(r"[^\w.-]|^\.+", "-", "-".join(parts), flags=re.ASCII)
    if (slug,) != parts:
        slug += f"-{hashlib.sha256('/'.join(parts).encode(errors='surrogateescape')).hexdigest()[:8]}"
    return slug


def write_pages(site: Site, out: Path, status: Callable[[str], None]) -> tuple[int, dict[str, str]]:
    """Write all pages of a site into a new or empty folder.

    Returns:
        The number of pages, and for the address of each that failed, the reason.

    Raises `StorageError`: the folder is not empty, or the disk refuses.
    """
    count, problems = 0, dict[str, str]()
    with whole_folder(out, OUTPUT_MODE) as hidden:
        site.freeze()
        for path, answer in linked_pages(site):
            if answer.problem:
                problems[path] = answer.problem
                continue
            with explain_errors(out / path, "written"):
                (hidden / path).parent.mkdir(parents=True, exist_ok=True)
                (hidden / path).write_bytes(answer.content)
            count += 1
            status(f"{count} pages written")
    return count, problems


def linked_pages(site: Site) -> Iterator[tuple[str, Answer]]:
    """Yield all linked pages, starting with the list of runs, by address."""
    known = dict.fromkeys(("index.html", *ASSETS))
    left = list(known)
    while left:
        path = left.pop()
        answer = site.answer(path)
        yield path, answer
        if answer.kind == HTML and answer.status == 200:
            links = (html.unescape(link.decode()) for link in LINK.findall(answer.content))
            new = {
                normpath(join(dirname(path), link)): None for link in links if not link.startswith("data:")
            }
            left += sorted((link for link in new if link not in known), reverse=True)
            known |= new


ADDRESS = "127.0.0.1"

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PortInUse(Exception):
    """Another process uses the port."""


class Server(ThreadingTCPServer):
    """A server with a thread for each connection, since browsers open some in advance."""

    allow_reuse_address = daemon_threads = True

    def handle_error(self, *connection: Any) -> None:
        """Print the traceback of a bug; the browser may leave a page at any time."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*connection)


def make_server(site: Site, token: str, port: int) -> TCPServer:
    """Return a server of a site's pages below `/TOKEN/` on the loopback address; `port` 0: any free port.

    It refuses other tokens. Raises `PortInUse`.
    """
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "speedrunner", ""

        def do_GET(self) -> None:
            try:
                address = unquote(urlsplit(self.path).path)
            except ValueError:
                address = ""
            given, slash, path = address.removeprefix("/").partition("/")
            if not hmac.compare_digest(given.encode(), token.encode()):
                why = "the address lacks its token: use the one that `speedrunner view` printed\n"
                answer = Answer(why.encode(), "text/plain", 403)
            elif not slash:
                answer = Answer(b"", status=302)
            else:
                with lock:  # one person reads: pages need not be safe in threads
                    answer = site.answer(path or "index.html")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
            if answer.status == 302:
                self.send_header("Location", f"/{token}/")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.content)

        do_HEAD = do_GET

        def end_headers(self) -> None:
            for name, value in HEADERS.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, *parts: object) -> None:
            """Write no log."""

    try:
        return Server((ADDRESS, port), Handler)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise PortInUse(
            f"port {port} is not available ({reason}): choose another --port, or 0 for a free one"
        ) from error
