"""`speedrunner serve` with a real vLLM. (Its own tests have a stand-in for the server.)"""

from __future__ import annotations

import pytest

from tests.serving_commands import check_serving_on_a_port


@pytest.mark.slow
def test_a_server_on_a_port_answers_those_who_can_read_its_key_until_it_is_stopped(tiny_folder: str) -> None:
    check_serving_on_a_port()
