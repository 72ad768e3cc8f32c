"""Headless Chromium, in which no page may complain or reach beyond where it came from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from speedrunner.pages.site import Site, write_pages
from tests.processes import HANGS_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
NARROW, WIDE, HEIGHT = 390, 1280, 800
"""Pixels of a telephone's width and of a laptop's, and the height of windows."""

COLORS = "(({ color, backgroundColor }) => [color, backgroundColor])(getComputedStyle(document.body))"
"""Of text and of what it stands on."""


class Pages:
    """Opens pages; `complaints` are errors on their consoles and requests that leave them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def open(self, url: str, *, width: int = WIDE, dark: bool = False) -> Page:
        """A page from a file, or from a server on loopback, as soon as it has loaded.

        Args:
            width: of the window, in pixels.
            dark: whether the person prefers dark pages.
        """
        origin = urlsplit(url)
        assert origin.scheme == "file" or origin.hostname in LOOPBACK
        context = self._browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(1000 * HANGS_S)
        self._contexts.append(context)
        context.on("request", lambda request: self._check(request, f"{origin.scheme}://{origin.netloc}/"))
        context.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        context.on("weberror", lambda raised: self.complaints.append(str(raised.error)))
        page = context.new_page()
        page.goto(url)
        return page

    def close(self) -> None:
        """All of them."""
        for context in self._contexts:
            context.close()

    def _check(self, request: Request, origin: str) -> None:
        if not request.url.startswith((origin, "data:", "blob:")):
            self.complaints.append(f"asks for {request.url[:200]}")


@pytest.fixture(scope="module")  # while it lives, its loop keeps tests of other files from having one
def browser() -> Iterator[Browser]:
    """Chromium; without one the test is skipped."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium: install the package chromium, or name a program in CHROMIUM")
    from playwright.sync_api import sync_playwright  # which every tier would import with this file

    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=program, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def pages(browser: Browser) -> Iterator[Pages]:
    """Opens pages; fails where one of them complained."""
    found = Pages(browser)
    yield found
    found.close()
    assert found.complaints == []


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the viewer of a folder in a process of its own. Yields the address of its pages, with a slash at
    the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "speedrunner.cli", "view", folder.name],
        cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        start = re.match(r"http://[^/]+/[^/]+/", process.stdout.readline())
        assert start is not None
        try:
            yield start[0]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[str]:
    """The address of the viewer's pages of a module's `folder`."""
    with serve(folder) as address:
        yield address


@pytest.fixture(scope="module")
def written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the same pages as files."""
    out = tmp_path_factory.mktemp("pages") / "out"
    write_pages(Site(folder), out, lambda line: None)
    return f"{out.as_uri()}/"
