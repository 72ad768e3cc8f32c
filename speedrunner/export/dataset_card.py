"""The card of an exported dataset: its README, with the metadata that the Hugging Face Hub reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path

import msgspec

from speedrunner.config.console import visible
from speedrunner.config.names import condition_name
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData

METADATA = """\
---
pretty_name: Episodes of LLM agents
license: other
license_name: terms-of-the-environments-and-models
task_categories:
- text-generation
tags:
- agents
- tool-use
- trajectories
configs:
- config_name: default
  data_files:
{files}
---
"""

ROWS = """\
# Episodes of LLM agents

One row for each conversation: `train` holds those of training episodes, `test` of held-out ones,
`sleep` those of the agents that changed the policy between them. `messages` are in order; `call` is
the tool call that was parsed, its `arguments` as JSON. `score` is missing where a fault ended the
episode. Tokens are sums over the conversation.
"""

LICENCE = """\
## Licence

The rows contain the environments' texts, which are under the licences of the environments, and text that the
models wrote, which is under the models' terms. Name both if you publish the dataset.
"""


def dataset_card(folder: Path, splits: Sequence[str], runs: Sequence[tuple[str, RunData]]) -> str:
    """Return the card of a dataset. Its other files are in `folder`.

    Args:
        splits: the splits that have a file.
        runs: the exported runs with their names in the dataset.

    Raises:
        OSError: a file cannot be read.
        StorageError, InvalidConfig: a run cannot be read.
    """
    files = "\n".join(f"  - split: {split}\n    path: data/{split}-*" for split in splits)
    names = ", ".join(plain(name) for name, _ in runs)
    notes = dict.fromkeys(plain(line) for _, run in runs for line in caveats(run.processes))
    return "\n".join(
        [
            METADATA.format(files=files) + "\n" + ROWS,
            f"Runs: {names}.\n",
            *(f"{line}.\n" for line in notes),
            "## How it was made\n",
            "SpeedRunner played the runs, and `speedrunner export --to dataset` wrote them.",
            "`configurations/` has the complete configuration of each run. `checksum` is the digest in the",
            "run's `state.json`, which covers all its records.\n",
            *_table("run env method model seed episodes speedrunner code checksum", starmap(_made, runs)),
            LICENCE,
            "## Checksums\n",
            *_table("file bytes SHA-256", _checksums(folder)),
        ]
    )


def plain(text: str) -> str:
    """Return a text as one line of Markdown without markup and HTML."""
    line = " ".join(visible(text).split())
    return re.sub(r"[<>&\[\]`*!|\\]", lambda found: f"&#{ord(found.group())};", line)


def _table(head: str, rows: Iterator[Sequence[object]]) -> Iterator[str]:
    columns = head.split()
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(plain(str(cell)) for cell in row)} |"
    yield ""


def _made(name: str, run: RunData) -> list[object]:
    """Return what determined a run."""
    condition = msgspec.structs.asdict(condition_name(run.settings))
    process = next(reversed(run.processes), None)
    versions = process.versions if process else {}
    return [
        *(name, condition["env"], condition["method"], condition["model"], run.settings.run.seed),
        len(run.episodes),
        *(versions.get(name, "not recorded") for name in ("speedrunner", "code")),
        run.state.digest or "none",
    ]


def _checksums(folder: Path) -> Iterator[list[object]]:
    """Yield each file with its length in bytes and its SHA-256."""
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        yield [file.relative_to(folder), file.stat().st_size, digest]
