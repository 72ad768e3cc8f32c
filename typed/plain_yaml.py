"""Read YAML as plain data, bounded in size and depth.

`read_plain` reads what a run recorded, which may be someone else's; `read_plain_file` what a user wrote.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

BYTES = 128 * 1024
"""Maximum bytes of a recorded configuration; those that SpeedRunner writes have a few thousand."""

FILE_BYTES = 2**20
"""Maximum bytes of a file that a user wrote."""

ALIASED = 20_000
"""Maximum number of values that all aliases of a file stand for together."""

BITS = 64
"""Maximum bits of an integer. Python parses any size in hexadecimal, but prints at most 4,300 digits."""

LEVELS = 20
"""Maximum depth of mappings and lists. libyaml's loader overflows the stack at some ten thousand."""

_BAD_VALUE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What PyYAML raises for values that do not fit their tag, such as the date 2026-02-30 and `!!bool x`."""


class NotPlain(ValueError):
    """The text is not YAML, or more than plain data. The message is one line."""


class _Loader(yaml.CSafeLoader):
    """Rejects duplicate keys, where PyYAML would use the last value."""

    def get_single_node(self) -> Any:
        """Return the content before its values are made: PyYAML then changes merged mappings in place."""
        waiting: list[Any] = [(top := super().get_single_node())]
        while waiting:
            node = waiting.pop()
            if isinstance(node, yaml.MappingNode):
                seen: set[str] = set()
                for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                    if key.value in seen:
                        raise NotPlain(f"{key.value} is set twice, again in line {key.start_mark.line + 1}")
                    seen.add(key.value)
                waiting += (value for _, value in node.value)
            elif isinstance(node, yaml.SequenceNode):
                waiting += node.value
        return top


class _UserLoader(_Loader):
    """Reads 1e-3 as a number, as people mean it. PyYAML writes the text "1e-3" without quotes."""


_UserLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


def read_plain(text: str) -> object:
    """Return the content of a recorded YAML text, without aliases and interpolations. Raises `NotPlain`."""
    if len(text.encode(errors="replace")) > BYTES:
        raise NotPlain(f"it has more than {BYTES} bytes")
    content = _read(text, _Loader, aliases=False)
    for key, value in _scalars(content, ""):
        if isinstance(value, str) and "${" in value:
            raise NotPlain(f"{key} is {value!r}, an interpolation; write the value")
    return content


def read_plain_file(file: Path) -> object:
    """Return the content of a YAML file. Aliases are allowed, but not within the value of an anchor.

    Raises `NotPlain`, which names the file.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise NotPlain("it is a folder, a pipe or a device, not a regular file")
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES + 1)
        if len(content) > FILE_BYTES:
            raise NotPlain(f"it has more than {FILE_BYTES} bytes")
        return _read(content.decode(), _UserLoader, aliases=True)
    except OSError as error:
        raise NotPlain(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # `NotPlain`, and bytes that are not text
        raise NotPlain(f"{file} cannot be read: {error}") from None


def read_value(text: str) -> object:
    """Return the value that a user wrote in a command. Raises `NotPlain`."""
    return _read(text, _UserLoader, aliases=False)


def _read(text: str, loader: type[_Loader], *, aliases: bool) -> object:
    try:
        _check_events(text, aliases)
        content: object = yaml.load(text, Loader=loader)
    except NotPlain:
        raise
    except yaml.YAMLError as error:
        raise NotPlain(f"it is not valid YAML: {' '.join(str(error).split())}") from None
    except _BAD_VALUE as error:
        raise NotPlain(f"it has a value that does not fit its type: {error}") from None
    for key, value in _scalars(content, ""):
        if isinstance(value, int) and value.bit_length() > BITS:
            raise NotPlain(f"{key} is an integer of more than {BITS} bits")
        if isinstance(value, str) and "\0" in value:
            raise NotPlain(f"{key} contains a zero byte")
    return content


def _check_events(text: str, aliases: bool) -> None:
    """Raise `NotPlain` if reading the text could take more memory than the text itself, or never end.

    Raises `yaml.YAMLError` if it is not YAML.
    """
    level = anchored = start = largest = aliased = 0
    for number, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) and (anchored or not aliases):
            where = " within the value of an anchor" if aliases else ""
            raise NotPlain(f"line {line} has the alias *{event.anchor}{where}: write the value")
        if isinstance(event, yaml.AliasEvent) and (aliased := aliased + largest + 1) > ALIASED:
            raise NotPlain(f"line {line} has the alias *{event.anchor}: all aliases repeat too many values")
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if event.anchor and not anchored:
                anchored, start = level, number
        elif isinstance(event, yaml.CollectionEndEvent):
            if anchored == level:
                anchored, largest = 0, max(largest, number - start)
            level -= 1
        if level > LEVELS:
            raise NotPlain(f"line {line} nests lists and mappings on more than {LEVELS} levels")


def _scalars(value: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield all scalars with their dotted keys; the keys are included as scalars."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield key or "a key", name
            yield from _scalars(item, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item, key)
    else:
        yield key, value
