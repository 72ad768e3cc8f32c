"""Model configs, right and wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

GOOD: dict[str, Any] = {
    "name": "m",
    "tried": "Nothing.",
    "path": "weights",
    "context": 4096,
    "tool_format": "qwen3_json",
    "roles": {"actor": {"string_tokens": 10}, "inducer": {"string_tokens": 20, "max_calls": 3}},
    "prices": {"uncached": 1, "cached": 0.1, "output": 2},
}

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"
HOSTED = {"path": None, "tool_format": None, "base_url": "https://h/v1", "api": "chat"}


def write(folder: Path, **changes: Any) -> str:
    """A model config like GOOD; a key like `roles__actor` changes a nested value, `None` removes one."""
    content = copy.deepcopy(GOOD)
    for place, value in changes.items():
        *parents, last = place.split("__")
        part = content
        for parent in parents:
            part = part.setdefault(parent, {})
        if value is None:
            del part[last]
        else:
            part[last] = value
    file = folder / "model.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(file)
