"""The training: it learns, it goes on where it was stopped, and what it exports can be served."""

from __future__ import annotations

import sys
from copy import copy
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from models.tiny import card, learning, train, training_corpus
from models.tiny.actor_examples import Example, snapshots
from models.tiny.learning import batches, new_model, pad_examples
from models.tiny.training_corpus import Examples
from models.tiny.training_recipe import SOURCES, Recipe, Stage
from serving.tokens.tokenizer import ChatTokenizer

STAGES = [
    Stage(tokens=3_000, batch=256, rate=3e-3, constant=0.5, mix={"snapshots": 1.0}),
    Stage(tokens=2_000, batch=256, rate=3e-3, constant=0.5, mix={"snapshots": 0.5, "plain": 0.5}),
]
SMALL = msgspec.structs.replace(
    Recipe.read(),
    stages=STAGES,
    network=msgspec.structs.replace(
        Recipe.read().network, hidden_size=16, intermediate_size=32, num_hidden_layers=2
    ),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return training_corpus.reader_of_bytes(tmp_path_factory.mktemp("tokenizer"), SMALL.context)


@pytest.fixture(scope="module")
def sources(tokenizer: ChatTokenizer) -> dict[str, Examples]:
    return {
        name: Examples.packed(list(islice(snapshots(tokenizer, seed), 30)))
        for seed, name in enumerate(("snapshots", "plain"))
    }


def test_packed_examples_are_the_examples() -> None:
    examples = [Example([1, 2], [False, True]), Example([3], [True])]
    assert list(Examples.packed(examples)) == examples


def test_a_batch_has_no_more_tokens_than_its_stage_says(sources: dict[str, Examples]) -> None:
    stage = Stage(tokens=1, batch=1_000, rate=1.0, constant=0.5, mix={"snapshots": 1.0})
    for batch in islice(batches(sources, stage, seed=0), 20):
        assert len(batch) == 1 or len(batch) * max(len(each.ids) for each in batch) <= 1_000


def test_every_example_of_a_source_is_drawn_before_one_comes_again() -> None:
    stage = Stage(tokens=1, batch=10**9, rate=1.0, constant=0.5, mix={"some": 1.0})
    some = {"some": [Example([number], [True]) for number in range(30)]}
    (drawn,) = islice(batches(some, stage, seed=0), 1)
    counts = [sum(each.ids == [number] for each in drawn) for number in range(30)]
    assert max(counts) - min(counts) == 1


def test_padding_is_never_learnt() -> None:
    ids, learnt = pad_examples([Example([1, 2, 3], [False, True, True]), Example([4], [False])], pad=0)
    assert ids.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert learnt.tolist() == [[False, True, True], [False, False, False]]


def test_the_rate_rises_stays_and_falls() -> None:
    stage = Stage(tokens=1_000, batch=1, rate=1.0, constant=0.5, mix={})
    assert stage.share_of_rate(0, 0) == pytest.approx(0.01)
    assert stage.share_of_rate(500, 400) == 1.0
    assert stage.share_of_rate(500, 750) == pytest.approx(0.5)
    assert stage.share_of_rate(500, 1_000) == pytest.approx(0.02)


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not(
    tokenizer: ChatTokenizer,
    sources: dict[str, Examples],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch  # heavy

    monkeypatch.setattr(learning, "SAVED_EVERY", 2)
    monkeypatch.setattr(learning, "TOLD_EVERY", 5)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")  # where sums are the same each time
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        folder.mkdir()
    expected, at = learning.train(SMALL, tokenizer, sources, whole, print)
    assert at.stage == 2
    assert [line[:5] for line in at.losses] == ["loss ", "loss "]

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learning.train(SMALL, tokenizer, sources, stopped, stop)
    lines: list[str] = []
    found, _ = learning.train(SMALL, tokenizer, sources, stopped, lines.append)
    assert lines[0] == "going on with stage 1, step 4"
    for name, weight in expected.state_dict().items():
        assert torch.equal(weight, found.state_dict()[name]), name


def test_what_is_exported_is_a_model_folder(
    tokenizer: ChatTokenizer, sources: dict[str, Examples], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = new_model(SMALL, tokenizer)
    train.export(model, tokenizer, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.num_parameters() == model.num_parameters()
    assert loaded.dtype is torch.bfloat16
    assert ChatTokenizer(tmp_path).decode(tokenizer.outside_text("a red ball")) == "a red ball"


@pytest.mark.process
class TestTheWorkFolder:
    def test_is_gone_on_with_by_the_same_recipe(self, tmp_path: Path) -> None:
        first, again = (train.open_work(tmp_path / "work") for _ in range(2))
        assert first == again

    @pytest.mark.parametrize("what", ["recipe_files", "digest_texts"])
    def test_of_another_recipe_or_of_other_prompts_is_refused(
        self, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train.open_work(tmp_path)
        monkeypatch.setattr(card, what, lambda: {"a": "b"})
        with pytest.raises(train.OtherRecipe, match="remove it, or name another folder with --work"):
            train.open_work(tmp_path)

    def test_with_something_else_in_it_is_refused_in_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "thesis.tex").write_text("")
        monkeypatch.setattr(sys, "argv", ["train", "--work", str(tmp_path)])
        with pytest.raises(SystemExit) as end:
            train.main()
        line = str(end.value.code)  # printed, with exit status 1
        assert line.startswith(f"error: {tmp_path} holds what another recipe, project or library")
        assert "\n" not in line
        assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network", {"hidden_sise": 64}),
        ("corpus", {"plain": 1}),
        ("corpus", dict.fromkeys(SOURCES, 0)),
        ("stages", [{"tokens": 1}]),
    ],
)
def test_a_recipe_with_a_mistake_is_refused(key: str, value: object) -> None:
    content = msgspec.to_builtins(Recipe.read()) | {key: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(content, Recipe)


def test_what_was_made_and_is_damaged_is_named(
    tokenizer: ChatTokenizer, sources: dict[str, Examples], tmp_path: Path
) -> None:
    saved = tmp_path / "training.pt"
    saved.write_bytes(b"PK")
    with pytest.raises(
        training_corpus.Damaged, match=r"training\.pt cannot be read \(.*\): remove it, and the same"
    ):
        learning.train(SMALL, tokenizer, sources, tmp_path, print)


def test_a_stage_that_ends_where_it_is_saved_can_be_gone_on_with(
    tokenizer: ChatTokenizer,
    sources: dict[str, Examples],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 1)
    steps: list[learning.Progress] = []
    monkeypatch.setattr(learning, "_save", lambda file, model, optimizer, at: steps.append(copy(at)))
    learning.train(SMALL, tokenizer, sources, tmp_path, print)
    for at in steps:
        assert at.stage == len(STAGES) or at.read < STAGES[at.stage].tokens


@pytest.mark.process
def test_a_corpus_has_as_many_examples_as_its_recipe_says(tmp_path: Path) -> None:
    training_corpus.reader_of_bytes(tmp_path, SMALL.context)
    found = training_corpus.make({"snapshots": 3}, tmp_path, tmp_path, print)
    assert len(found["snapshots"]) == 3
    (tmp_path / "snapshots.npz").write_bytes(b"PK")
    with pytest.raises(training_corpus.Damaged, match=r"snapshots\.npz cannot be read"):
        training_corpus.make({"snapshots": 3}, tmp_path, tmp_path, print)
