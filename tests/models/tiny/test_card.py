"""The bundled model as it is committed: card, tokenizer, weights and recipe belong together."""

from __future__ import annotations

import json
from pathlib import Path

from models.tiny import card
from models.tiny.teachers import recorded_sleeps
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import model_path


def test_the_files_are_those_of_the_card() -> None:
    assert card.files(card.WEIGHTS) == card.read().files


def test_the_card_in_words_says_what_the_facts_say() -> None:
    assert (card.WEIGHTS / card.TEXT).read_text("utf-8") == card.text(card.read(), card.WEIGHTS)


def test_tokenizer_and_network_have_as_many_entries() -> None:
    config = json.loads((card.WEIGHTS / "config.json").read_bytes())
    tokenizer = ChatTokenizer(card.WEIGHTS).huggingface
    assert len(tokenizer) == config["vocab_size"] == card.read().vocabulary
    assert config["max_position_embeddings"] >= load_model_config("tiny").context


def test_it_is_what_the_model_card_serves() -> None:
    assert Path(model_path(load_model_config("tiny"))) == card.WEIGHTS
    assert load_model_config("tiny").caveat


def test_sleeps_were_recorded_with_the_numbers_that_its_prompts_have() -> None:
    shown, served = recorded_sleeps.MODEL_CONFIG, load_model_config("tiny")
    assert shown.context == served.context
    assert shown.roles.inducer.string_tokens == served.roles.inducer.string_tokens
    assert shown.roles.inducer.max_calls == served.roles.inducer.max_calls


def test_what_was_measured_leaves_room_to_learn() -> None:
    facts = card.read()
    assert facts.measured is not None, "`python -m models.tiny.train --measure` measures it"
    low, high = facts.success_range
    assert low <= facts.measured.success <= high
    assert facts.measured.episodes >= 200
