"""Model cards as files: what is read from them, and how they are adapted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serving.cards import CHECKOUT, adapted, list_cards, load_card
from serving.errors import InvalidCard
from serving.model_card import ModelCard
from serving.usage import Prices
from serving.weights import model_path
from tests.refusals import Golden, refusals
from tests.serving.card_samples import COMMIT, HOSTED, write


def test_the_bundled_card_is_listed_and_loads() -> None:
    assert "tiny-random" in list_cards()
    card = load_card("tiny-random")
    assert card.name == "tiny-random"
    assert card.route == "tokens"
    assert card.prices == Prices(uncached=0.75, cached=0.075, output=4.5)
    assert card.role("actor").thinking_tokens == 0


def test_the_card_s_own_values_stay_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, shape="s", replicas=2, load_format="dummy"))
    assert (card.replicas, card.load_format) == (2, "dummy")
    assert adapted(card, None, None) == card
    assert adapted(card, None, "auto") == card


def test_without_weights_the_shape_stands_for_the_model_and_no_revision_is_named(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s"))
    dummy = adapted(card, load_format="dummy")
    assert (dummy.id, dummy.revision) == (None, None)
    assert model_path(dummy) == str(CHECKOUT / ".cache/models/s-shape")
    stated = write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT, shape="s", load_format="dummy")
    assert load_card(stated) == dummy


def test_what_a_card_does_not_allow_is_told(tmp_path: Path, golden: Golden) -> None:
    plain, hosted = load_card(write(tmp_path)), load_card(write(tmp_path, **HOSTED))
    given: list[tuple[ModelCard, dict[str, Any]]] = [
        *((plain, {"load_format": kind}) for kind in ("dummy", "gguf")),
        *((plain, {"replicas": 0}), (hosted, {"replicas": 2})),
    ]
    tries = [(f"{card.base_url} {changes}", partial(adapted, card, **changes)) for card, changes in given]
    golden("adapted_configurations.txt", refusals(tries, InvalidCard))


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = Path(write(tmp_path, **HOSTED))
    file.write_text(file.read_text() + "route: responses\n")
    with pytest.raises(
        InvalidCard, match=r"card\.yaml cannot be read: route is set twice, again in line"
    ) as caught:
        load_card(str(file))
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_cards_and_the_nearest() -> None:
    with pytest.raises(
        InvalidCard, match=r"'tiny-randon' \(did you mean tiny-random\?\); known: .*tiny-random"
    ):
        load_card("tiny-randon")


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list", "", "\x00"])
def test_a_file_that_is_no_card_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(InvalidCard, match=r"broken\.yaml") as caught:
        load_card(str(file))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCard, match=r"no model card at .*absent\.yaml"):
        load_card(str(tmp_path / "absent.yaml"))
