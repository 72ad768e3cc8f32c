"""A configuration gets the context and flags that the memory of the GPUs here allows."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
from huggingface_hub import constants

from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.model_configs import adapt, load_model_config
from serving.sizing import describe, fit, size_model
from tests.golden_tables import Golden, error_message, table
from tests.gpu_kinds import GPUS, with_config

BIG = load_model_config("qwen3.5-27b")


class TestFit:
    def test_context_sequences_and_step_come_from_the_memory(self, tmp_path: Path) -> None:
        model_config = with_config(BIG, tmp_path)
        fitted = fit(model_config, [GPUS["H200"]])
        flags = fitted.server.flags
        chosen = fitted.context, flags["max-num-seqs"], flags["max-num-batched-tokens"]
        assert chosen == (262_144, 104, 8192)
        graphs = flags["compilation-config"]["cudagraph_capture_sizes"]
        assert (104 in graphs, graphs[-1]) == (True, 208)

    def test_the_smallest_gpu_decides(self, tmp_path: Path) -> None:
        assert fit(with_config(BIG, tmp_path), [GPUS["H200"], GPUS["H100"]]).context == 131_072

    def test_a_second_time_changes_nothing(self, tmp_path: Path) -> None:
        once = fit(with_config(BIG, tmp_path), [GPUS["H100"]])
        assert fit(once, [GPUS["H100"]]) == once
        assert fit(once, [GPUS["H200"]]) == once

    def test_flags_of_the_configuration_win(self, tmp_path: Path) -> None:
        flags = {"max-num-seqs": 4, "max-num-batched-tokens": 2048}
        flags |= {"compilation-config": {"cudagraph_capture_sizes": [1, 4]}}
        model_config = with_config(BIG, tmp_path, **flags)
        fitted = fit(msgspec.structs.replace(model_config, context=65_536), [GPUS["H100"]])
        assert (fitted.context, fitted.server) == (65_536, model_config.server)

    def test_a_match_unit_that_does_not_divide_a_block_is_refused_before_the_start(
        self, tmp_path: Path
    ) -> None:
        fits = [unit for unit in (1, 4, 16) if fit(self.with_unit(unit, tmp_path), [GPUS["H100"]])]
        assert fits == [1, 4, 16]
        with pytest.raises(InvalidModelConfig) as refused:
            fit(self.with_unit(32, tmp_path), [GPUS["H100"]])
        assert str(refused.value) == (
            "qwen3.5-27b: server.flags.prefix-match-unit 32 must divide the 784 tokens of a block: 16 always"
            " does"
        )

    def with_unit(self, unit: int, folder: Path) -> ModelConfig:
        return with_config(BIG, folder, **{"prefix-match-unit": unit})

    def test_less_memory_for_the_engine_means_less_context(self, tmp_path: Path) -> None:
        model_config = with_config(BIG, tmp_path, **{"gpu-memory-utilization": 0.8})
        assert fit(model_config, [GPUS["H100"]]).context == 65_536

    @pytest.mark.parametrize("flag", ["num-gpu-blocks-override", "kv-cache-dtype", "speculative-config"])
    def test_flags_that_the_arithmetic_does_not_know_leave_it_as_it_is(
        self, tmp_path: Path, flag: str
    ) -> None:
        model_config = with_config(BIG, tmp_path, **{flag: "x"})
        assert fit(model_config, [GPUS["H100"]]) is model_config

    def test_what_is_not_known_stays_as_it_is(self, tmp_path: Path) -> None:
        model_config = with_config(BIG, tmp_path)
        assert fit(model_config, []) is model_config
        assert fit(model_config, [msgspec.structs.replace(GPUS["H100"], total=0)]) is model_config
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen9"}))
        assert fit(model_config, [GPUS["H100"]]) is model_config
        for content in (b"{", b"[]", b"\xff"):
            (tmp_path / "config.json").write_bytes(content)
            assert fit(model_config, [GPUS["H100"]]) is model_config
        (tmp_path / "config.json").unlink()
        other = msgspec.structs.replace(model_config, shape=None)
        assert fit(other, [GPUS["H100"]]) is other
        on_cpu = load_model_config("tiny-random")
        assert fit(on_cpu, [GPUS["H100"]]) is on_cpu

    def test_a_model_that_is_not_here_yet_has_the_sizes_of_its_shape(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # which need not be asked
        for model_config in (BIG, adapt(BIG, load_format="dummy")):
            assert fit(model_config, [GPUS["H100"]]).context == 131_072


def test_people_see_what_was_chosen_and_what_the_cache_holds(tmp_path: Path, golden: Golden) -> None:
    gpus, model_config = [GPUS["H100"]], with_config(BIG, tmp_path)
    twice = msgspec.structs.replace(model_config, replicas=2)
    small = partial(fit, model_config, [GPUS["A6000"]])
    lines = {
        "one GPU": describe(fit(model_config, gpus), gpus),
        "two replicas": describe(fit(twice, gpus), gpus),
        "a GPU that is too small": error_message(small, InvalidModelConfig),
    }
    golden("sizing.txt", table(lines))


class TestWhereItIsServed:
    def test_the_gpus_are_said_once(self, tmp_path: Path) -> None:
        said: list[str] = []
        fitted = size_model(with_config(BIG, tmp_path), [GPUS["H200"]], said.append)
        assert fitted.context == 262_144
        assert size_model(fitted, [GPUS["H200"]], said.append) == fitted
        (line,) = said
        assert line.startswith("qwen3.5-27b on 1 x NVIDIA H200: context 262,144, 104 sequences, ")

    def test_without_gpus_it_stays_as_it_is(self) -> None:
        assert size_model(BIG, [], print) is BIG
