"""Builds the documentation and the API reference as one static site: `make docs`.

    .cache/docs-venv/bin/python docs/site/build_site.py [--site FOLDER]

The pages link to each other as they lie in the checkout. So the script copies them, and the files that they
link, into `build/pages` under the same paths, adds a page for each public package, and runs MkDocs. MkDocs
reads the packages' sources without importing them, so its environment needs none of their dependencies.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePath
from posixpath import normpath

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "docs"

TEXTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md"),
    *("slurm/README.md", "models/tiny/weights/README.md"),
)
"""The pages of the site, as patterns relative to the checkout."""

PACKAGES = {
    "envs": "Environments",
    "serving": "Models and tokens",
    "speedrunner.data": "Recorded runs",
    "speedrunner.methods": "Methods",
}
"""The public packages, with the titles of their pages."""


def list_texts() -> list[Path]:
    """Return the site's pages in the checkout."""
    return [path for pattern in TEXTS for path in sorted(ROOT.glob(pattern))]


def relative_links(text: str) -> list[str]:
    """Return the targets of a page's links and images, with their anchors, except addresses of websites."""
    prose = re.sub(r"^( *)```.*?^\1```|`[^`\n]+`(?!\])", "", text, flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"\w+:", target)]


def collect_pages(folder: Path) -> None:
    """Write the site's pages and the files that they link into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = {path.relative_to(ROOT).as_posix() for path in list_texts()}
    linked = {
        normpath((PurePath(text).parent / target.partition("#")[0]).as_posix())
        for text in texts
        for target in relative_links((ROOT / text).read_text("utf-8"))
        if not target.startswith("#")
    }
    for name in texts | {name for name in linked if (ROOT / name).is_file()}:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
    (folder / "api").mkdir()
    for package, title in PACKAGES.items():
        page = f"# {title}: `{package}`\n\n::: {package}\n"
        (folder / "api" / f"{package}.md").write_text(page, "utf-8")
    shutil.copyfile(HERE / "iframe-worker.js", folder / "iframe-worker.js")


def build_site(site: Path) -> int:
    """Build the site in strict mode, where broken links are errors, and return the exit status of MkDocs."""
    collect_pages(PAGES)
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean")
    files = ("--config-file", HERE / "mkdocs.yml", "--site-dir", site)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # the theme prints its own notices otherwise
    return subprocess.run((*command, *files), cwd=ROOT, env=environment, check=False).returncode


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the documentation as a static site.")
    parser.add_argument("--site", type=Path, default=SITE, metavar="FOLDER", help="default: build/docs")
    site = parser.parse_args().site.resolve()
    if status := build_site(site):
        sys.exit(status)
    print(f"{site / 'index.html'} is written")


if __name__ == "__main__":
    main()
