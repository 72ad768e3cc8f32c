"""Scripted engines for probes: prefix caches in need of advice."""

from __future__ import annotations

from typing import Any

from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import Script, ScriptedEngine, sample_call


class Probed(ScriptedEngine):
    """It asks its script about probes too."""

    def __init__(self, tokenizer: ChatTokenizer, script: Script = sample_call) -> None:
        super().__init__(tokenizer, script)
        self.answers_probes = False


class Silent(Probed):
    """It caches, and tells so by its counters only."""

    def _count(self, prompt: tuple[int, ...], generated: list[int]) -> dict[str, Any]:
        return {**super()._count(prompt, generated), "prompt_tokens_details": None}


class Forgetful(Probed):
    """It forgets each prompt at once."""

    def _count(self, prompt: tuple[int, ...], generated: list[int]) -> dict[str, Any]:
        self._blocks.clear()
        return super()._count(prompt, generated)


class Off(Forgetful):
    """Its cache is off, and it says so."""

    @property
    def metrics(self) -> str:
        return super().metrics.replace('caching="True"', 'caching="False"')
