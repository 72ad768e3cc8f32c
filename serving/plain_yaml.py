"""Read YAML as plain data: mappings, lists, text, numbers, true, false and null."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import msgspec
import yaml

MAX_BYTES = 2**20
"""Maximum bytes of a file; those in `configs/` and those that runs record have a few thousand."""

MAX_LEVELS = 50
"""Maximum depth of mappings and lists. libyaml overflows the stack at some ten thousand."""


class NotPlain(ValueError):
    """The text is not YAML, or more than plain data. The message is one line."""


class _Loader(yaml.CSafeLoader):
    """Rejects duplicate keys, where PyYAML would use the last value.

    As in YAML 1.2, `on`, `off`, `yes`, `no` and dates are text, and 1e-3 is a number.
    """

    def flatten_mapping(self, node: Any) -> None:
        """Check the keys of a mapping before those of merged mappings are added to its node."""
        seen: set[str] = set()
        if hasattr(node, "is_flat"):
            return
        node.is_flat = True
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen and key.value != "<<":
                raise NotPlain(f"{key.value} is set twice, again in line {key.start_mark.line + 1}")
            seen.add(key.value)
        super().flatten_mapping(node)


_Loader.yaml_implicit_resolvers = {}
_SCALARS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": ("<<", "<"),
}
for _name, (_pattern, _first) in _SCALARS.items():
    _resolver = re.compile(rf"({_pattern})\Z")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _resolver, list(_first))


class _Dumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time, and quotes text that looks like a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"({_SCALARS['float'][0]})\Z"), list(_SCALARS["float"][1])
)


def write_yaml(content: object) -> str:
    """Return plain data as YAML; keys keep their order."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text. Raises `NotPlain`."""
    try:
        _check_depth(text)
        content = yaml.load(text, Loader=_Loader)
        if "\\u0000" in msgspec.json.encode(content).decode():
            raise NotPlain("it contains a zero byte")
    except yaml.YAMLError as error:
        raise NotPlain(f"it is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise NotPlain("it has a value that contains itself") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        if isinstance(error, NotPlain):
            raise
        raise NotPlain(f"it has a value that does not fit its type: {error}") from None
    return content


def read_yaml_file(file: Path) -> Any:
    """Return the content of a YAML file. Raises `NotPlain`, which names the file."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise NotPlain("it is a folder, a pipe or a device, not a regular file")
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise NotPlain(f"it has more than {MAX_BYTES} bytes")
        return read_yaml(content.decode())
    except OSError as error:
        raise NotPlain(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # `NotPlain`, and bytes that are not text
        raise NotPlain(f"{file} cannot be read: {error}") from None


def read_value(text: str) -> Any:
    """Return a value that a user wrote in a command: a YAML number, list, mapping, quoted text ... or text.

    Text without quotes is taken as it is, whatever characters it has. Raises `NotPlain`.
    """
    if text.startswith(("[", "{", "'", '"')):
        return read_yaml(text)
    try:
        value = read_yaml(text) if text else text
    except NotPlain:
        return text
    return text if isinstance(value, str | dict | list) else value


def _check_depth(text: str) -> None:
    level = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MAX_LEVELS:
            raise NotPlain(f"it nests lists and mappings on more than {MAX_LEVELS} levels")
