"""Write the viewer's pages to files."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import dirname, join, normpath

from speedrunner.pages.site import ASSETS, HTML, Answer, Site
from speedrunner.store.files import explain_errors
from speedrunner.store.folders import check_new, output_folder

LINK = re.compile(rb' (?:href|data-piece)="([^"?#]+)')
"""Addresses of pages, and of data that a page's script loads."""


def write(site: Site, out: Path, status: Callable[[str], None]) -> tuple[int, dict[str, str]]:
    """Write all pages of a site into a new or empty folder.

    Returns:
        The number of pages, and for the address of each that failed, the reason.

    Raises:
        StorageError: the folder is not empty, or the disk refuses.
    """
    check_new(out, "--static")
    count, problems = 0, dict[str, str]()
    with output_folder(out) as hidden:
        for path, answer in pages(site):
            if answer.problem:
                problems[path] = answer.problem
                continue
            with explain_errors(out / path, "written"):
                (hidden / path).parent.mkdir(parents=True, exist_ok=True)
                (hidden / path).write_bytes(answer.content)
            count += 1
            status(f"{count} pages written")
    return count, problems


def pages(site: Site) -> Iterator[tuple[str, Answer]]:
    """Yield all linked pages, starting with the list of runs, by address."""
    known = dict.fromkeys(("index.html", *ASSETS))
    left = list(known)
    while left:
        path = left.pop()
        answer = site.answer(path, {})
        yield path, answer
        if answer.kind == HTML and answer.status == 200:
            found = (html.unescape(link.decode()) for link in LINK.findall(answer.content))
            new = {
                normpath(join(dirname(path), link)): None for link in found if not link.startswith("data:")
            }
            left += sorted((link for link in new if link not in known), reverse=True)
            known |= new
