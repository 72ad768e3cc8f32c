"""`make docs` builds the site without a broken link, and its pages work from disk, without a network."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urljoin

import pytest

from docs.site.build_site import PACKAGES
from serving.model_configs import CHECKOUT
from tests.browser.conftest import Pages
from tests.processes import HANGS_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the site's folder, built by `make docs`' two commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKOUT / "requirements")
        import install
    try:
        install.install("docs", install.DOCS_VENV)
    except install.NotPossibleHere as reason:
        pytest.skip(f"the environment of `make docs` cannot be built here: {reason}")
    folder: Path = tmp_path_factory.mktemp("docs")
    program = CHECKOUT / "docs" / "site" / "build_site.py"
    done = subprocess.run(
        [install.DOCS_VENV / "bin" / "python", program, "--site", folder],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{folder / 'index.html'} is written\n")
    return f"{folder.as_uri()}/"


def test_the_api_reference_has_each_public_name(site: str, pages: Pages) -> None:
    for package in PACKAGES:
        page = pages.open(urljoin(site, f"api/{package}.html"))
        module = __import__(package, fromlist=["__all__"])
        headings = page.locator("h2[id]").evaluate_all("all => all.map(one => one.id)")
        assert sorted(headings) == sorted(f"{package}.{name}" for name in module.__all__)


def test_the_search_finds_a_page_and_opens_it(site: str, pages: Pages) -> None:
    page = pages.open(urljoin(site, "index.html"))
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("EpisodeOver")
    page.locator(".md-search-result__link", has_text="EpisodeOver").first.click()
    page.wait_for_url("**/api/envs.html*")
    assert page.get_by_role("heading", name="EpisodeOver").is_visible()


def test_a_link_of_the_readme_opens_a_page(site: str, pages: Pages) -> None:
    page = pages.open(urljoin(site, "index.html"))
    page.get_by_role("article").get_by_role("link", name="docs/troubleshooting.md").click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("When something does not work")
