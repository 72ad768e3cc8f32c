"""The log of an engine's steps, as its process writes it and benchmarks read it."""

from __future__ import annotations

from pathlib import Path

from serving.engine.step_log import log_step, read_steps


def test_steps_are_read_as_they_were_written_and_an_incomplete_row_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "steps"
    assert read_steps(file) == []
    with file.open("ab") as log:
        log_step(log, [1, 1, 1], waiting=2, graph_mode="FULL")
        log_step(log, [1, 57], waiting=0, graph_mode=None)
        log.write(b"begun")
    decoding, mixed = read_steps(file)
    assert (decoding.requests, decoding.waiting, decoding.graph_mode) == (3, 2, "full")
    assert (mixed.requests, mixed.prefill_tokens, mixed.graph_mode) == (2, 56, "unknown")
    assert (decoding.only_decodes, mixed.only_decodes) == (True, False)
    assert decoding.time_s <= mixed.time_s
    assert read_steps(file, start=1) == [mixed]
