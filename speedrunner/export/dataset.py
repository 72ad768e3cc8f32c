"""Export runs as a Hugging Face datasets folder: parquet files and a README, one row for each conversation.

`datasets.load_dataset(FOLDER)` opens it; its splits are `train`, `test` and `sleep`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import msgspec

from speedrunner.config.names import condition_name
from speedrunner.config.optional import optional
from speedrunner.export.conversations import Conversation, Split, iterate_conversations, run_names
from speedrunner.export.dataset_card import dataset_card
from speedrunner.store.files import explain_errors
from speedrunner.store.run_data import RunData, load

ROWS = 200
"""Maximum number of conversations held in memory at a time."""


def write_dataset(paths: Sequence[Path], folder: Path) -> dict[str, int]:
    """Write runs into a folder, which is created if missing. Return the number of rows by split.

    Raises:
        NotInstalled: pyarrow is missing.
        StorageError: a run cannot be read, or the folder cannot be written.
        InvalidConfig: a run's configuration cannot be read.
    """
    pyarrow = optional("pyarrow", "pyarrow", "a dataset")
    parquet = optional("pyarrow.parquet", "pyarrow", "a dataset")
    schema = _schema(pyarrow)
    runs = list(zip(run_names(paths), paths, strict=True))
    counts: dict[str, int] = {}
    with explain_errors(folder, "written"), ExitStack() as stack:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for split in get_args(Split):
            file = folder / "data" / f"{split}-00000-of-00001.parquet"
            rows = chain.from_iterable(
                _rows(load(path, skip_broken=True), name, split) for name, path in runs
            )
            for group in iter(lambda rows=rows: list(islice(rows, ROWS)), []):  # type: ignore[misc]
                if split not in counts:  # a split without rows has no file
                    writer = stack.enter_context(parquet.ParquetWriter(file, schema, compression="zstd"))
                writer.write_table(pyarrow.Table.from_pylist(group, schema))
                counts[split] = counts.get(split, 0) + len(group)
        (folder / "configurations").mkdir()
        for name, path in runs:
            text = load(path, skip_broken=True).config_text
            (folder / "configurations" / f"{name}.yaml").write_text(text, encoding="utf-8")
    with explain_errors(folder, "written"):  # the files are complete once their writers are closed
        loaded = [(name, load(path, skip_broken=True)) for name, path in runs]
        card = dataset_card(folder, list(counts), loaded)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return counts


def _schema(pyarrow: Any) -> Any:
    text, whole = pyarrow.string(), pyarrow.int64()
    call = pyarrow.struct([("name", text), ("arguments", text)])
    message = pyarrow.struct([("role", text), ("content", text), ("reasoning", text), ("call", call)])
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
            ("messages", pyarrow.list_(message)),
        ]
    )


def _rows(run: RunData, name: str, split: Split) -> Iterator[dict[str, Any]]:
    config = run.settings
    about = msgspec.structs.asdict(condition_name(config)) | {"run": name, "seed": config.run.seed}
    for facts, each in iterate_conversations(run, split):
        yield about | facts | _row(each)


def _row(conversation: Conversation) -> dict[str, Any]:
    usage = conversation.usage
    return {
        "role": conversation.role,
        "conversation": conversation.number,
        "llm_calls": conversation.calls,
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "output_tokens": usage.completion,
        "reasoning_tokens": usage.reasoning,
        "messages": [
            {
                "role": message.role,
                "content": message.content,
                "reasoning": message.reasoning or None,
                "call": message.call
                and {
                    "name": message.call.name,
                    "arguments": msgspec.json.encode(message.call.arguments).decode(),
                },
            }
            for message in conversation.messages
        ],
    }
