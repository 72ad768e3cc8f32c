"""Export runs as a Hugging Face datasets folder: parquet files and a README, one row for each conversation.

`datasets.load_dataset(FOLDER)` opens it; its splits are `train`, `test` and `sleep`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import msgspec
from jinja2 import Environment

from speedrunner.config.names import identify_condition
from speedrunner.plain.console import visible
from speedrunner.results.export.conversations import (
    Split,
    iterate_conversations,
    offered_tools,
    run_names,
)
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import Turn
from speedrunner.store.run_data import RunData, load

ROWS = 200
"""Maximum number of conversations held in memory at a time."""

CARD = Path(__file__).with_name("dataset_card.jinja")
"""The README, with the metadata that the Hugging Face Hub reads."""


def write_dataset(paths: Sequence[Path], folder: Path) -> dict[str, int]:
    """Write runs into an empty folder. Return the number of rows by split.

    Raises:
        StorageError: a run cannot be read.
        InvalidConfig: a run's configuration cannot be read.
        OSError: the folder cannot be written.
    """
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = _schema(pyarrow)
    runs = list(zip(run_names(paths), paths, strict=True))
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        (folder / "data").mkdir()
        for split in get_args(Split):
            file = folder / "data" / f"{split}-00000-of-00001.parquet"
            rows = chain.from_iterable(_rows(load(path), name, split) for name, path in runs)
            for group in iter(lambda rows=rows: list(islice(rows, ROWS)), []):  # type: ignore[misc]
                if split not in counts:  # a split without rows has no file
                    writer = stack.enter_context(parquet.ParquetWriter(file, schema, compression="zstd"))
                writer.write_table(pyarrow.Table.from_pylist(group, schema))
                counts[split] = counts.get(split, 0) + len(group)
        (folder / "configurations").mkdir()
        loaded = [(name, load(path)) for name, path in runs]
        for name, run in loaded:
            (folder / "configurations" / f"{name}.yaml").write_text(run.config_text, encoding="utf-8")
        template = Environment(trim_blocks=True, keep_trailing_newline=True)
        card = template.from_string(CARD.read_text("utf-8")).render(
            splits=list(counts),
            names=[_plain(name) for name, _ in loaded],
            digests=[f"{_plain(name)}: {run.digest}" for name, run in loaded],
            notes=[_plain(line) for line in caveats(run for _, run in loaded)],
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return counts


def _schema(pyarrow: Any) -> Any:
    text, whole = pyarrow.string(), pyarrow.int64()
    call = pyarrow.struct([("name", text), ("arguments", text)])
    message = pyarrow.struct(
        [("role", text), ("content", text), ("reasoning", text), ("call", call), ("weight", whole)]
    )
    texts = ("run", "env", "method", "model", "episode", "task", "role", "termination")
    return pyarrow.schema(
        [
            *((name, text) for name in texts),
            *((name, whole) for name in ("seed", "task_index", "policy", "conversation", "llm_calls")),
            *(
                (name, whole)
                for name in ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
            ),
            ("score", pyarrow.float64()),
            ("success", pyarrow.bool_()),
            ("tools", pyarrow.list_(text)),
            ("messages", pyarrow.list_(message)),
        ]
    )


def _rows(run: RunData, name: str, split: Split) -> Iterator[dict[str, Any]]:
    config = run.settings
    about = identify_condition(config).by_column | {"run": name, "seed": config.run.seed}
    offered = offered_tools(run)
    for facts, conversation in iterate_conversations(run, split):
        usage, turns = conversation.usage, conversation.turns
        yield {
            **about,
            **facts,
            "role": conversation.role,
            "conversation": conversation.number,
            "llm_calls": len(turns),
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "output_tokens": usage.completion,
            "reasoning_tokens": usage.reasoning,
            "tools": [_json(tool) for tool in offered.get((conversation.role, facts["policy"]), [])],
            "messages": list(_messages(turns)),
        }


def _messages(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """Yield messages. The weight of a valid answer is 1, so that a training learns it; of others it is 0."""
    for turn in turns:
        for message in turn.messages:
            yield {"role": message.role, "content": message.content, "weight": 0}
        yield {
            "role": "assistant",
            "content": turn.text,
            "reasoning": turn.reasoning or None,
            "call": turn.call and {"name": turn.call.name, "arguments": _json(turn.call.arguments)},
            "weight": int(turn.call is not None),
        }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _plain(text: str) -> str:
    """Return a text as one line of Markdown without markup and HTML."""
    line = " ".join(visible(text).split())
    return re.sub(r"[<>&\[\]`*!|\\]", lambda mark: f"&#{ord(mark.group())};", line)
