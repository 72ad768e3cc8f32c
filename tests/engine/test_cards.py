"""The cards in `models/`: the engine takes their flags."""

from __future__ import annotations

from pathlib import Path

from serving.cards import adapted, list_cards, load_card
from serving.engine.flags import flag_problems
from serving.engine.server import VllmServer

SERVED = {card.name: card for card in map(load_card, list_cards()) if not card.hosted}


def test_the_engine_knows_every_flag_of_every_card() -> None:
    lines = {name: VllmServer(card, "some/model", Path("unused")).arguments for name, card in SERVED.items()}
    lines |= {
        f"{name} adapted": adapted(card, 2 if card.nodes == 1 else 1, "dummy").arguments()
        for name, card in SERVED.items()
        if card.gpus
    }
    lines["misspelt"] = ["--enable-prefix-cachin"]
    lines["no number"] = ["--max-num-seqs", "many"]
    lines["no field"] = ["--structured-outputs-config", '{"backnd": "xgrammar"}']
    assert sorted(flag_problems(lines)) == ["misspelt", "no field", "no number"]
