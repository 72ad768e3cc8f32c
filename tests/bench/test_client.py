"""The client's benchmark: what it sends, and what it reports."""

from __future__ import annotations

import msgspec
import pytest

from serving.model_card import ModelCard
from speedrunner.config.schema import InvalidConfig
from tests.bench.client import measure_client

pytestmark = pytest.mark.process


async def test_every_number_in_flight_and_every_length_is_a_level(tiny_card: ModelCard) -> None:
    found = await measure_client(tiny_card, [1, 3], [500, 2000], lambda line: None)
    levels = found.tables[0].rows
    assert [(level.in_flight, level.tokens) for level in levels] == [(1, 500), (3, 500), (1, 2000)]
    assert all(level.cpu_ms > 0 for level in levels)
    (figure,) = found.figures
    assert figure.value == max(level.cpu_ms for level in levels)
    assert figure.at_most == 3.0


async def test_a_model_on_another_route_is_refused(tiny_card: ModelCard) -> None:
    with pytest.raises(InvalidConfig, match="chat route"):
        await measure_client(msgspec.structs.replace(tiny_card, route="chat"), [1], [9], lambda line: None)
