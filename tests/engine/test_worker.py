"""The worker inside a real vLLM."""

from __future__ import annotations

import psutil

from serving.engine.endpoint import Endpoint


def test_no_process_of_a_server_on_a_socket_listens_on_tcp(vllm_endpoint: Endpoint) -> None:
    address = str(vllm_endpoint.socket)
    (guard,) = (
        each
        for each in psutil.process_iter(["cmdline"])
        if address in (each.info["cmdline"] or []) and "guard.py" in " ".join(each.info["cmdline"])
    )
    processes = guard.children(recursive=True)
    assert len(processes) >= 2  # the API's and the engine's
    tcp = [(each.name(), port) for each in processes for port in each.net_connections("tcp")]
    assert not [each for each in tcp if each[1].status == psutil.CONN_LISTEN]
