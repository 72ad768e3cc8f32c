"""Read untrusted YAML as plain data: no aliases, no interpolations, bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

BYTES = 128 * 1024
"""Maximum bytes of a configuration; those that SpeedRunner writes have a few thousand."""

BITS = 64
"""Maximum bits of an integer. Python parses any size in hexadecimal, but prints at most 4,300 digits."""

LEVELS = 20
"""Maximum depth of mappings and lists. libyaml's loader overflows the stack at some ten thousand."""


class NotPlain(ValueError):
    """The text is not YAML, or more than plain data. The message is one line without the file's name."""


def read_plain(text: str) -> object:
    """Return the content of a YAML text. Raises `NotPlain`."""
    if len(text.encode(errors="replace")) > BYTES:
        raise NotPlain(f"it has more than {BYTES} bytes")
    try:
        check_events(text)
        content: object = yaml.load(text, Loader=yaml.CSafeLoader)
    except NotPlain:
        raise
    except (yaml.YAMLError, ValueError) as error:  # such as a number with more digits than Python parses
        raise NotPlain(f"it is not valid YAML: {' '.join(str(error).split())}") from None
    for key, value in _scalars(content, ""):
        if isinstance(value, int) and value.bit_length() > BITS:
            raise NotPlain(f"{key} is an integer of more than {BITS} bits")
        if isinstance(value, str) and "${" in value:
            raise NotPlain(f"{key} is {value!r}, an interpolation; write the value")
    return content


def check_events(text: str) -> None:
    """Raise `NotPlain` if reading the text could take more memory than the text itself.

    Raises `yaml.YAMLError` if it is not YAML.
    """
    level = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise NotPlain(f"line {line} has the alias *{event.anchor}: write the value")
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
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
