"""Every relative link in the documentation leads to a file of the checkout, and its anchor to a heading."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT

TEXTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md"),
    *("slurm/README.md", "models/tiny/weights/README.md"),
)
"""The pages, as patterns relative to the checkout."""

PAGES = [
    path.relative_to(CHECKOUT).as_posix() for pattern in TEXTS for path in sorted(CHECKOUT.glob(pattern))
]


def relative_links(text: str) -> list[str]:
    """Return the targets of a page's links and images, with their anchors, except addresses of websites."""
    prose = re.sub(r"^( *)```.*?^\1```|`[^`\n]+`(?!\])", "", text, flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"\w+:", target)]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", prose, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in relative_links(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    assert broken_links(CHECKOUT / page) == []


@pytest.mark.process
def test_each_markdown_file_outside_of_the_tests_is_a_page() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(PAGES) == [name for name in sorted(listed.stdout.split()) if not name.startswith("tests/")]
