"""What a model card's fields must not say together, where each for itself is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from serving.model_card import ModelCard, Role, ToolFormatName
from typed.values import in_words

OWN_FLAGS = frozenset(
    {"model", "served-model-name", "revision", "tokenizer-revision", "max-model-len", "dtype"}
    | {"host", "port", "uds", "api-key", "data-parallel-size", "load-format"}
    | {"nnodes", "node-rank", "master-addr", "master-port", "headless"}
)
"""Flags that the server object sets itself, from the card's other fields; a card's `server.flags` may not."""

_SHARDED = "server.flags.tensor-parallel-size (times pipeline-parallel-size)"


def contradictions(card: ModelCard) -> Iterator[str]:
    """All that is wrong between the fields of a card whose single fields are right."""
    given = [name for name in ("path", "id", "base_url") if getattr(card, name) is not None]
    if len(given) != 1:
        yield (
            "it must name exactly one of `path` (folder), `id` (on the hub) and `base_url` (hosted model), "
            f"but has {' and '.join(given) or 'none'}"
        )
    if card.id is not None and card.revision is None:
        yield f"`id: {card.id}` needs a `revision` (a commit of its hub repository)"
    if card.id is None and card.revision is not None:
        yield "`revision` goes with `id` alone"
    if card.recipe is not None and card.path is None:
        yield "`recipe` goes with `path` alone"
    if card.hosted and card.route == "tokens":
        yield "`base_url` (a hosted model) needs `route: chat` or `route: responses`"
    if card.hosted and (names := _set_in_vain(card)):
        yield f"`base_url` (a hosted model) allows no {names}: nothing is started for it"
    if not card.hosted and card.api_key_env is not None:
        yield "`api_key_env` goes with `base_url` alone: a server started here makes its own key"
    if card.route == "tokens" and card.tool_format is None and not card.hosted:
        yield f"`route: tokens` needs a `tool_format`: {in_words(ToolFormatName)}"
    for name in ("actor", "inducer"):
        role = card.role(name)
        yield from (f"roles.{name}.{problem}" for problem in _beyond_route(card, role))
        if (most := role.thinking_tokens + role.string_tokens) >= card.context:
            yield (
                f"roles.{name}: an answer of {most} tokens (thinking_tokens and string_tokens) does not fit a"
                f" context of {card.context}"
            )
    if card.load_format == "dummy" and card.shape is None:
        yield "`load_format: dummy` needs a `shape` (models/shapes/build.py lists them)"
    flags = card.server.flags
    if card.cache == "hybrid" and "prefix-match-unit" not in flags:
        yield "`cache: hybrid` needs server.flags.prefix-match-unit, such as 16"
    if card.cache == "attention" and "prefix-match-unit" in flags:
        yield "server.flags.prefix-match-unit goes with `cache: hybrid` alone"
    shards = _shards(flags)
    if card.gpus and shards != card.gpus:
        yield f"`gpus: {card.gpus}` contradicts {_SHARDED}, which is {shards}"
    if shards % card.nodes:
        yield f"`nodes: {card.nodes}` must divide {_SHARDED}, which is {shards}: each node has as many parts"
    if card.nodes > 1 and card.replicas > 1:
        yield "`nodes` above 1 goes with `replicas: 1` alone; a sweep of several jobs has a server in each"
    for flag in flags:
        if flag.startswith("-"):
            yield f"server.flags.{flag}: write the flag without its leading dashes"
        if flag in OWN_FLAGS:
            yield f"server.flags.{flag}: not here, it is set from the card's other fields"


def _shards(flags: Mapping[str, object]) -> int:
    """Parts of the model that compute at the same time; 0 where the flags give no numbers."""
    across, along = (flags.get(flag, 1) for flag in ("tensor-parallel-size", "pipeline-parallel-size"))
    return across * along if isinstance(across, int) and isinstance(along, int) else 0


def _beyond_route(card: ModelCard, role: Role) -> Iterator[str]:
    """What a role asks for that the card's route cannot do."""
    if role.thinking_tokens and card.route != "tokens":
        yield f"thinking_tokens must be 0 on `route: {card.route}`, which has no budget of thinking"
    elif role.thinking_tokens and card.thinking == "none":
        yield "thinking_tokens must be 0 where `thinking` is none"
    if not card.hosted and role.reasoning_effort is not None:
        yield "reasoning_effort is for hosted models; thinking_tokens bounds others"
    if card.hosted and card.route == "responses":
        if role.top_k is not None:
            yield "top_k must be null on a hosted model's `route: responses`, which knows no such field"
        reasons = role.reasoning_effort not in (None, "none")
        for name in ("temperature", "top_p"):
            if reasons and getattr(role, name) is not None:
                yield f"{name} must be null beside a reasoning_effort: models that reason refuse it"


def _set_in_vain(card: ModelCard) -> str:
    """The fields of a hosted model's card that speak of a server of ours."""
    ours = ("cache", "gpus", "nodes", "replicas", "load_format", "shape", "server")
    plain = ModelCard(
        name=card.name, tried=card.tried, context=card.context, roles=card.roles, prices=card.prices
    )
    return ", ".join(f"`{name}`" for name in ours if getattr(card, name) != getattr(plain, name))
