"""The fields of a model config: how the model is served, how its roles sample, and what it costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from serving.usage import Prices

Positive = Annotated[int, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Commit = Annotated[
    str, msgspec.Meta(pattern="^[0-9a-f]{40}$", description="a commit (40 hexadecimal digits)")
]
Api = Literal["completions", "chat", "responses"]
ToolFormatName = Literal["qwen3_json", "qwen3_xml", "llama3_json"]
ThinkingStyle = Literal["none", "generated", "prompted"]


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """How one role (actor, inducer) samples, and how much it may write.

    Attributes:
        string_tokens: longest string argument of a tool call, in tokens; the call's grammar enforces it.
        thinking_tokens: budget of the reasoning before each call, in tokens: of the thinking region or, for
            models without one, of plain text; 0 allows none.
        temperature: sampling temperature. `None`, here and below: without effect (1.0); for hosted models,
            the provider's default.
        top_p: nucleus sampling, a share of probability mass.
        top_k: sample from the k likeliest tokens.
        max_calls: most requests of this role in one agent's work; `None` keeps the method's own limit.
        reasoning_effort: hosted models only (paper, Appendix A.1: low for the actor, medium for the inducer).
        template_options: variables of the model's chat template in every prompt of the role, such as
            `reasoning_effort: low` for Qwen3.8. `thinking_tokens` sets `enable_thinking`.
    """

    string_tokens: Positive
    thinking_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Share | None = None
    top_k: Positive | None = None
    max_calls: Positive | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    template_options: dict[str, bool | int | str] = {}

    def calls(self, most: int) -> int:
        """Return the requests that the role may make if a method allows `most`."""
        return min(most, self.max_calls or most)


class Roles(msgspec.Struct, frozen=True):
    """The roles that a model config sets; every other role (curriculum, critic, ...) uses the inducer's."""

    actor: Role
    inducer: Role


CONVOY_STEPS = 12
"""Default of `ModelConfig.convoy_steps` on GPUs, by a simulation of measured rollouts (docs/gpu.md)."""

CONVOY_SEQUENCES = 24
"""A server with room for fewer sequences decodes alone in most steps anyway."""


class ServerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How vLLM is started for a model.

    Attributes:
        flags: options of vLLM's API server without their leading dashes, with their value: `true` for a bare
            flag, `false` for its `--no-` form, a mapping for an option that takes JSON.
        env: environment variables of the server's processes.
    """

    flags: dict[str, bool | int | float | str | dict[str, Any]] = {}
    env: dict[str, str | int] = {}

    def environment(self) -> dict[str, str]:
        """Return this process's environment variables with those of `env`."""
        return {**os.environ, **{name: str(value) for name, value in self.env.items()}}

    def arguments(self) -> list[str]:
        """Return `flags` as arguments of a command line."""
        arguments = []
        for flag, value in self.flags.items():
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            elif isinstance(value, dict):
                arguments += [f"--{flag}", msgspec.json.encode(value).decode()]
            else:
                arguments += [f"--{flag}", str(value)]
        return arguments


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One model: where it is, how it is served, how its roles sample, and what its tokens cost.

    `load_model_config` rejects unknown fields. The records of older runs have some that no longer exist.

    Exactly one of three fields names the weights: `path`, `id` (with `revision`) or `base_url`. A file with
    `path` or `id` may leave out `tried`, `roles`, `prices` and `server` (`serving.model_configs.DEFAULTS`).

    Attributes:
        name: the engine's name for it, which requests carry as `model`.
        tried: what was tried with this model config, on what hardware, and what was not.
        caveat: what users must know about its results; shown below each table of them, and in exports.
        context: the longest prompt plus completion, in tokens. On GPUs it is the model's limit, and a server
            gets as much of it as fits into memory (see `serving.sizing`).
        roles: sampling and budgets per role.
        prices: USD per million tokens.
        path: folder with the weights; a relative one counts from the checkout.
        lora: folder with a LoRA adapter of these weights, in PEFT's format; the adapter answers all requests.
        recipe: script that creates `path`, relative to `models/`, with its arguments. Before each start it is
            run as `python RECIPE --out FOLDER`; it must leave an up-to-date folder alone.
        id: the model's id on the Hugging Face hub.
        revision: commit of that repository, so that a run records exactly what it used; a branch may move.
        base_url: address of a hosted model's OpenAI-compatible API; no server is started for it.
        api_key_env: environment variable with the hosted model's API key.
        api: `completions` sends token ids and our grammar to `/v1/completions`; `chat` and `responses` send
            messages and tools to `/v1/chat/completions` and `/v1/responses` (hosted models, OpenAI's on the
            latter; on vLLM, its built-in tool calls).
        tool_format: how the model writes a tool call natively; needed on the completions API.
        tools_in: what shows the tools to the model: its chat template, or the system message. A template that
            shows none leaves them to the system message in any case (`serving.tokens.chat_template`).
        thinking: how a thinking region opens: the model writes `<think>` itself (`generated`), or finds it in
            its prompt (`prompted`); a model with `none` reasons in plain text.
        thinking_closing: text that ends a thinking region when its budget is used up, before the closing tag,
            as the model's publisher recommends; empty: the region ends in mid-sentence. The grammar forces
            it, so its tokens are output tokens beyond `thinking_tokens`.
        dtype: number type of weights and activations.
        cache: what the prefix cache keeps: `attention` (any prefix, in whole blocks), or `hybrid` (linear
            attention with states that are kept only at the ends of prompts, in units of the flag
            `prefix-match-unit`).
        convoy_steps: most steps that a request of a hybrid model waits so that several start together (see
            `serving.engine.convoy`); 0 for none. By default 12 on GPUs, if a server has room for at least 24
            sequences.
        gpus: GPUs that one replica takes; 0 for a CPU or a hosted model.
        replicas: copies of the model behind one address (data parallel). Each has its own cache; the request
            header `X-data-parallel-rank` chooses one.
        load_format: `dummy` loads random weights into the model's true shape; nothing is downloaded.
        shape: the name of that shape in `models/shapes/shapes.yaml`.
        server: vLLM's own options.
    """

    name: str
    tried: Annotated[str, msgspec.Meta(min_length=1)]
    context: Positive
    roles: Roles
    prices: Prices
    caveat: str = ""
    path: str | None = None
    lora: str | None = None
    recipe: str | None = None
    id: str | None = None
    revision: Commit | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    api: Api = "completions"
    tool_format: ToolFormatName | None = None
    tools_in: Literal["template", "system"] = "template"
    thinking: ThinkingStyle = "none"
    thinking_closing: str = ""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    cache: Literal["attention", "hybrid"] = "attention"
    convoy_steps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    replicas: Positive = 1
    load_format: Literal["auto", "dummy"] = "auto"
    shape: str | None = None
    server: ServerOptions = ServerOptions()

    def role(self, name: str) -> Role:
        """Return sampling and budgets of a role: the actor's, or for any other name the inducer's."""
        return self.roles.actor if name == "actor" else self.roles.inducer

    @property
    def hosted(self) -> bool:
        """Whether someone else serves the model, so that no server is started for it."""
        return self.base_url is not None

    @property
    def all_gpus(self) -> int:
        """GPUs that its server takes, with all replicas."""
        return self.gpus * self.replicas

    @property
    def convoys(self) -> int:
        """Most steps that a request waits so that several start together; 0 for none."""
        if self.convoy_steps is not None:
            return self.convoy_steps
        sequences = self.server.flags.get("max-num-seqs", CONVOY_SEQUENCES)
        is_large = isinstance(sequences, int) and sequences >= CONVOY_SEQUENCES
        return CONVOY_STEPS if self.gpus > 0 and is_large and self.can_convoy else 0

    @property
    def can_convoy(self) -> bool:
        """Whether turns may begin together: on a hybrid model, with vLLM's own scheduler and one token per
        step."""
        has_other = {"speculative-config", "scheduler-cls"} & self.server.flags.keys()
        return self.cache == "hybrid" and not has_other

    def with_flags(self, flags: Mapping[str, Any]) -> ModelConfig:
        """Return the model config with these flags of its server added or changed."""
        server = msgspec.structs.replace(self.server, flags={**self.server.flags, **flags})
        return msgspec.structs.replace(self, server=server)

    def arguments(self) -> list[str]:
        """Return the model config's part of the server's command: replicas, weights, and `server.flags`."""
        replicas = ["--data-parallel-size", str(self.replicas)] if self.replicas > 1 else []
        weights = ["--load-format", self.load_format] if self.load_format != "auto" else []
        return [*replicas, *weights, *self.server.arguments()]
