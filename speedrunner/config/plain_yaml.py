"""YAML that someone else may have written, read as plain data: no aliases, no interpolations, bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

BYTES = 128 * 1024
"""Bytes of a configuration that are read; those that SpeedRunner writes have a few thousand."""

BITS = 64
"""Bits of a whole number. Python reads one of any size in hexadecimal, and writes none of 4,300 digits."""

LEVELS = 20
"""Mappings and lists within each other. libyaml's loader overflows the stack at some ten thousand."""


class NotPlain(ValueError):
    """The text is not YAML, or more than plain data. Its message is one line without the file's name."""


def read_plain(text: str) -> object:
    """Return the content of a YAML text. Raises `NotPlain`."""
    if len(text.encode(errors="replace")) > BYTES:
        raise NotPlain(f"it has more than {BYTES} bytes")
    try:
        check_events(text)
        content: object = yaml.load(text, Loader=yaml.CSafeLoader)
    except NotPlain:
        raise
    except (yaml.YAMLError, ValueError) as error:  # such as a number of more digits than Python reads
        raise NotPlain(f"it is no YAML: {' '.join(str(error).split())}") from None
    for key, value in _scalars(content, ""):
        if isinstance(value, int) and value.bit_length() > BITS:
            raise NotPlain(f"{key} is a whole number of more than {BITS} bits")
        if isinstance(value, str) and "${" in value:
            raise NotPlain(f"{key} is {value!r}: interpolations are not resolved here; write the value")
    return content


def check_events(text: str) -> None:
    """Raise `NotPlain` where reading the text could take more than the text itself does.

    Raises `yaml.YAMLError` where it is no YAML.
    """
    level = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise NotPlain(f"line {line} has the alias *{event.anchor}: write the value")
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > LEVELS:
            raise NotPlain(f"line {line} has lists and mappings on more than {LEVELS} levels")


def _scalars(value: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield all texts, numbers and the like with their keys in dots; the keys are among them."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield key or "a key", name
            yield from _scalars(item, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item, key)
    else:
        yield key, value
