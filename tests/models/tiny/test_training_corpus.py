"""The inducer's corpus: recorded sleeps, in the ids that serving would see."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from models.tiny import training_corpus
from models.tiny.teachers.recorded_sleeps import SLEEPS, RunSettings, play
from models.tiny.training_corpus import Vocabulary, sessions
from serving.tokens.tokenizer import ChatTokenizer

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run."""
    folder = tmp_path_factory.mktemp("runs")
    asyncio.run(play(RunSettings("c", batch=2), folder / "0-0000"))
    return folder


def test_each_sleep_is_the_conversation_that_serving_would_have(runs: Path, tmp_path: Path) -> None:
    reader = training_corpus.reader_of_bytes(tmp_path, 1024)
    found = [*sessions(reader, runs)]
    assert len(found) == SLEEPS
    for example in found:
        text = reader.decode(example.ids)
        learnt = reader.decode([each for each, own in zip(example.ids, example.learnt, strict=True) if own])
        assert text.startswith("<|im_start|>system\nYou maintain a library of skills")
        assert text.count("<|im_start|>assistant\n") == learnt.count("<think>\n")
        assert '{"name": "finish"' in learnt
        assert "new episodes were" not in learnt


def test_the_tokenizer_of_a_corpus_has_its_lines_as_tokens(runs: Path, tmp_path: Path) -> None:
    made_of = Vocabulary(sample=SLEEPS, phrase_share=0.5, words=600)
    folder = tmp_path / "corpus"
    training_corpus.make_tokenizer(made_of, ["sleeps"], runs, 1024, folder)
    found = training_corpus.make({"sleeps": 1}, runs, ChatTokenizer(folder))
    assert len(found["sleeps"]) == SLEEPS
    assert max(len(each.ids) for each in found["sleeps"]) < 3_000
