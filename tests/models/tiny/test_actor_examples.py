"""The actor's corpus: what is written there is what serving would read, in worlds of neither split."""

from __future__ import annotations

from itertools import islice

import pytest

from envs import Opening, Task
from envs.babyai import WORLD_SEEDS, BabyAI
from models.tiny import training_corpus
from models.tiny.actor_examples import Example, Written, episodes, snapshots
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall
from speedrunner.agents.actor import SUBMIT_ANSWER
from speedrunner.store.records import Message


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Of few words, and no phrases but those of calls."""
    folder = tmp_path_factory.mktemp("tokenizer")
    template = training_corpus.TEMPLATE
    made = training_corpus.build_tokenizer(
        ["Your task: pick up "], ["the words"], template, words=300, context=4096
    )
    made.save_pretrained(folder)
    return ChatTokenizer(folder)


def written(tokenizer: ChatTokenizer, example: Example) -> str:
    """What is to be learnt of an example."""
    return tokenizer.decode(
        [each for each, learnt in zip(example.ids, example.learnt, strict=True) if learnt]
    )


def test_no_world_of_a_split_is_played(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Task] = []
    reset = BabyAI.reset

    def recorded(env: BabyAI, task: Task) -> Opening:
        played.append(task)
        return reset(env, task)

    monkeypatch.setattr(BabyAI, "reset", recorded)
    for source in (episodes(tokenizer, 0, skilled=0.5), snapshots(tokenizer, 0)):
        list(islice(source, 60))
    assert len({task.index for task in played}) > 60
    assert min(task.index for task in played) >= WORLD_SEEDS.stop
    split = BabyAI.splits()
    assert max(task.index for task in (*split.train, *split.test)) < WORLD_SEEDS.stop


def test_an_episode_is_the_conversation_that_serving_would_have(tokenizer: ChatTokenizer) -> None:
    for example in islice(episodes(tokenizer, 0, skilled=0.5), 20):
        assert len(example.ids) == len(example.learnt)
        text = tokenizer.decode(example.ids)
        assert text.startswith("<|im_start|>system\nYou play one episode of a text environment.")
        assert text.endswith("</tool_call><|im_end|>")
        turns = text.count("<|im_start|>assistant\n")
        assert written(tokenizer, example).count("<think>\n") == turns


def test_what_serving_would_not_read_cannot_be_written(tokenizer: ChatTokenizer) -> None:
    talk = Written(tokenizer, [Message("user", "Go.")], [SUBMIT_ANSWER])
    with pytest.raises(ValueError, match="serving would read None"):
        talk.answer("I fly.", ToolCall("fly", {}))


def test_a_call_that_is_not_to_be_learnt_leaves_its_thought(tokenizer: ChatTokenizer) -> None:
    talk = Written(tokenizer, [Message("user", "Go.")], [SUBMIT_ANSWER])
    talk.answer("Done.", ToolCall("submit_answer", {}), learnt=False)
    assert written(tokenizer, talk.example()) == "<think>\nDone.\n</think>\n\n"
