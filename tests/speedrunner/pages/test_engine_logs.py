"""The state of engines from vLLM's log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from speedrunner.pages.engine_logs import list_engine_states, read_engine_states
from tests.page_elements import HOSTILE

LINE = (
    "(APIServer pid=31) INFO 11-23 21:40:01 [loggers.py:335] Engine {:03}: Avg prompt throughput: 1691.1"
    " tokens/s, Avg generation throughput: 689.4 tokens/s, Running: {} reqs, Waiting: 3 reqs, GPU KV cache"
    " usage: 1.3%, Prefix cache hit rate: 90.4%\n"
)


def test_the_last_line_of_each_engine_counts(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("starting\n" + LINE.format(0, 4) + LINE.format(1, 5) + LINE.format(0, 6) + "GET /health")
    first, second = read_engine_states(log, time.time())
    assert (first.engine, first.running, first.waiting) == (0, 6, 3)
    assert (first.prompt, first.output, first.cache_use, first.cached) == (1691.1, 689.4, 1.3, 90.4)
    assert (second.engine, second.running) == (1, 5)


def test_an_engine_that_starts_again_has_no_state_until_it_works(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    start = "(APIServer pid=32) INFO 11-23 21:41:00 [api_utils.py:286] non-default args: {'model': 'm'}\n"
    log.write_text(LINE.format(0, 4) + LINE.format(1, 5) + start)
    assert read_engine_states(log, time.time()) == []
    log.write_text(log.read_text() + LINE.format(1, 6))
    (state,) = read_engine_states(log, time.time())
    assert (state.engine, state.running) == (1, 6)


def test_without_prefix_cache_its_share_is_unknown(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LINE.format(0, 4).replace(", Prefix cache hit rate: 90.4%", ""))
    (state,) = read_engine_states(log, time.time())
    assert (state.cache_use, state.cached) == (1.3, None)


def test_an_old_log_says_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LINE.format(0, 4))
    assert read_engine_states(log, time.time() + 3600) == []


def test_logs_of_runs_and_of_the_sweep_are_found_once(tmp_path: Path) -> None:
    for name in ("part1-server.log", "one/server.log", "two/inducer_server.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(LINE.format(0, 1))
    found = list_engine_states([tmp_path / "one", tmp_path / "two"])
    assert sorted(Path(each.log).name for each in found) == [
        "inducer_server.log", "part1-server.log", "server.log",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", [HOSTILE, "", LINE.format(0, 4).replace("1691.1", "1.2.3"), "Engine 0: " * 9999]
)
def test_other_lines_are_no_state(tmp_path: Path, text: str) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    assert read_engine_states(log, time.time()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(LINE.format(0, 4))
    (tmp_path / "server.log").symlink_to(tmp_path / "secret")
    assert read_engine_states(tmp_path / "server.log", time.time()) == []
