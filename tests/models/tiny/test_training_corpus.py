"""The inducer's corpus: recorded sleeps, in the ids that serving would see."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from envs.babyai import BabyAI
from models.tiny import training_corpus
from models.tiny.teachers import recorded_sleeps
from models.tiny.teachers.recorded_sleeps import SLEEPS, RunSettings
from models.tiny.training_corpus import Vocabulary, sessions
from serving.conversation import Conversation
from serving.model import Messages
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from speedrunner.methods.speedrunner.speedrunner_method import inducer_tools

pytestmark = pytest.mark.process

OFFERED: list[list[ToolSpec]] = []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run."""
    folder = tmp_path_factory.mktemp("runs")
    converse = recorded_sleeps._Programs.converse

    def recorded(
        self: recorded_sleeps._Programs,
        role: str,
        messages: Messages,
        tools: list[ToolSpec],
        labels: dict[str, str],
    ) -> Conversation:
        if role == "inducer":
            OFFERED.append(tools)
        return converse(self, role, messages, tools, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_sleeps._Programs, "converse", recorded)
        asyncio.run(recorded_sleeps.play(RunSettings("c", batch=2), folder / "0-0000"))
    return folder


def test_the_tools_are_those_that_the_inducer_was_offered(runs: Path) -> None:
    assert [inducer_tools(BabyAI.primitives, interpreter=True)] * SLEEPS == OFFERED


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
