"""The browser's fixture finds what pages must not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Pages

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("markup", "complaint"),
    [
        ("<img src='http://192.0.2.1/x.png'>", "asks for http://192.0.2.1/x.png"),
        ("<script>nothing()</script>", "nothing is not defined"),
        ("<script>console.error('told')</script>", "told"),
    ],
)
def test_what_a_page_must_not_do_is_noted(tmp_path: Path, pages: Pages, markup: str, complaint: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(f"<!DOCTYPE html><title>A page</title>{markup}")
    pages.open(file.as_uri())
    found, pages.complaints = pages.complaints, []
    assert any(complaint in each for each in found)
