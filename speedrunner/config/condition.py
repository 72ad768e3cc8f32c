"""The identity of a condition: everything that distinguishes its runs from others, except for their seed.

Identities are compared by their fields. Names of folders and in tables are made from them.
"""

from __future__ import annotations

import re

import msgspec

Option = bool | int | float | str | None

COLUMNS = ("env", "method", "model")
"""Columns of tables that have the names of a condition."""


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment or a method.

    Attributes:
        options: those that differ from its file in `configs/`; switches are booleans.
    """

    name: str
    options: dict[str, Option] = {}

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same name: `True == 1`, but `off` and `0` are named differently."""
        return isinstance(other, Choice) and (self.name, self.text) == (other.name, other.text)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def text(self) -> str:
        """Return the name with the options: `speedrunner-no-interpreter`, `speedrunner-prompt_asi_style`.

        An option that is on is named alone, one that is off after `no-`, any other with its value.
        """
        return self.name + "".join(_name_option(key, self.options[key]) for key in sorted(self.options))

    def __str__(self) -> str:
        return plain_name(self.text)


class ModelVariant(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model of a run, and the changes to its config that are part of a name."""

    name: str
    has_cache: bool = True
    context: int | None = None
    actor_thinking: int | None = None
    inducer_thinking: int | None = None

    def __str__(self) -> str:
        text = self.name if self.has_cache else f"{self.name}-uncached"
        text += "" if self.context is None else f"-context{self.context}"
        for role, tokens in (("actor", self.actor_thinking), ("inducer", self.inducer_thinking)):
            text += "" if tokens is None else f"-{role}_thinking{tokens}"
        return text

    @property
    def unchanged(self) -> ModelVariant:
        """Return the same model without changes."""
        return ModelVariant(self.name)


class Treatment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a condition plays with: the method, and everything else that is neither world nor model.

    Attributes:
        visible_last: the part of a stored library that the actor sees.
        searches: whether the actor searches it.
        settings: other settings than those of comparable runs in a report; empty in stored records.
    """

    method: Choice
    wording: int = 0
    visible_last: int | None = None
    searches: bool = False
    start: Start | None = None
    settings: str = ""

    def __str__(self) -> str:
        text = f"{self.method}{f'-wording{self.wording}' if self.wording else ''}{self.shown}"
        text += "" if self.start is None else f"-from_{self.start}"
        return f"{text} ({self.settings})" if self.settings else text

    @property
    def shown(self) -> str:
        """Return the part of the name about the shown skills, such as `-visible_last50`; "" for all."""
        last = "" if self.visible_last is None else f"-visible_last{self.visible_last}"
        return last + "-search" * self.searches


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run whose policy a run starts with.

    Attributes:
        env: its environment; for a run that does not exist (yet), the name of its folder.
        treatment: `None`: the same method, and nothing else.
        model: `None`: the same models, without changes or with those of the run.
        seed: `None`: the same. From another seed, treatment and model are always there.
        version: of the policy; empty: the newest.
        has_history: whether training continues with its history.
    """

    env: Choice
    treatment: Treatment | None = None
    model: ModelVariant | None = None
    seed: int | None = None
    version: str = ""
    has_history: bool = True

    def __str__(self) -> str:
        text = "-".join(str(part) for part in (self.env, self.treatment, self.model) if part is not None)
        text += "" if self.seed is None else f"-seed{self.seed}"
        text += f"_{self.version}" if self.version else ""
        return text + ("" if self.has_history else "-without_history")


class ConditionId(msgspec.Struct, frozen=True):
    """The identity of a condition."""

    env: Choice
    treatment: Treatment
    model: ModelVariant

    @property
    def names(self) -> tuple[str, str, str]:
        """Return the names of environment, treatment and model, as in folders and tables."""
        return str(self.env), str(self.treatment), str(self.model)

    @property
    def by_column(self) -> dict[str, str]:
        """Return the names by their columns in tables."""
        return dict(zip(COLUMNS, self.names, strict=True))

    def __str__(self) -> str:
        return " ".join(self.names)


def plain_name(text: str) -> str:
    """Return a text as a part of a folder's name."""
    return re.sub(r"[^\w.-]+", "_", text)


def _name_option(key: str, value: Option) -> str:
    if isinstance(value, bool):
        return f"-{'' if value else 'no-'}{key}"
    return f"-{key}{'' if isinstance(value, int) else '_'}{value}"
