"""Which requests a server on the loopback address refuses, and where it listens."""

from __future__ import annotations

import pytest

from speedrunner.pages.loopback import find_refusal


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:8000", "localhost:9000"])
def test_a_request_to_this_machine_is_allowed(host: str) -> None:
    assert find_refusal([host], None) is None
    assert find_refusal([host], f"http://{host}") is None


@pytest.mark.parametrize(
    "hosts", [[], ["example.org"], ["127.0.0.1.example.org"], ["localhost", "localhost"], ["[::1]:80"], [""]]
)
def test_a_request_to_another_name_is_refused(hosts: list[str]) -> None:
    found = find_refusal(hosts, None)
    assert found is not None
    assert found[0] == 421


@pytest.mark.parametrize("origin", ["http://example.org", "null", "https://localhost", "http://localhost:1"])
def test_a_request_from_a_page_of_another_origin_is_refused(origin: str) -> None:
    found = find_refusal(["localhost"], origin)
    assert found is not None
    assert found[0] == 403
