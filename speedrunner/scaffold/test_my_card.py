"""Is the card right? `speedrunner serve model.card=my_card.yaml --print` shows what it starts."""

from __future__ import annotations

from pathlib import Path

from serving import load_card


def test_it_loads() -> None:
    card = load_card(str(Path(__file__).with_name("my_card.yaml")))
    assert card.name == "my_card"
