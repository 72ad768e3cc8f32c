"""Every page passes axe-core, wide and narrow, light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from speedrunner.pages.site import HTML, Site, linked_pages
from tests.browser.conftest import HEIGHT, NARROW, WIDE, Pages
from tests.scripted_runs import in_process
from tests.speedrunner.pages.runs import hostile_run, long_run
from tests.synthetic_sweep import write_sweep

pytestmark = pytest.mark.slow

LOOKS = ((WIDE, False), (NARROW, True))
"""Widths of windows in pixels, and whether they are dark."""

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


def violations(page: Page) -> list[str]:
    """Return each rule that the page violates in one of `LOOKS`, with elements. Unfolds everything first."""
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    options = {"resultTypes": ["violations"], "preload": False, "runOnly": {"type": "tag", "values": RULES}}
    lines = []
    for width, dark in LOOKS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.emulate_media(color_scheme="dark" if dark else "light")
        for each in Axe().run(page, options=options).response["violations"]:
            lines += [
                f"{width} pixels, dark {dark}: {each['id']}: {each['help']}: {node['html'][:200]};"
                f" {node['failureSummary'][:300]}"
                for node in each["nodes"][:3]
            ]
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An invented sweep, a run with pictures, and one with hostile texts in all fields."""
    folder = tmp_path_factory.mktemp("viewed")
    write_sweep(folder, seeds=2)
    long_run(folder / "long", 3)
    hostile_run(folder / "hostile")
    return folder


def test_every_kind_of_page_of_the_viewer_is_accessible(folder: Path, written: str, pages: Pages) -> None:
    kinds: dict[str, str] = {}
    for path, answer in linked_pages(Site(folder)):
        if answer.kind == HTML:
            kinds.setdefault(re.sub(r"\d+", "N", path), urljoin(written, path))
    assert len(kinds) > 10
    found = []
    for kind, address in kinds.items():
        page = pages.open(address)
        found += [f"{kind}, {each}" for each in violations(page)]
        page.context.close()
    assert "\n".join(found) == ""


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the runs. It leaves out the run with pictures, which has no ledger."""
    out = tmp_path_factory.mktemp("report")
    done = in_process("report", str(folder), "--out", str(out))
    assert (out / "report.html").exists(), done.stderr
    return (out / "report.html").as_uri()


def test_the_report_is_accessible(report: str, pages: Pages) -> None:
    assert violations(pages.open(report)) == []
