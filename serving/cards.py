"""Model cards: one YAML file per model says how it is served, how its roles sample, and what it costs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from serving.errors import InvalidCard, ServerFailed
from serving.usage import Prices
from typed.records import WrongData, record
from typed.values import in_words, suggest

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS = CHECKOUT / "models"

Positive = Annotated[int, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Commit = Annotated[
    str, msgspec.Meta(pattern="^[0-9a-f]{40}$", description="a commit (40 hexadecimal digits)")
]
Route = Literal["tokens", "chat", "responses"]
ToolFormatName = Literal["qwen3_json", "qwen3_xml", "llama3_json"]

SHAPES = "shapes/build.py"
"""The recipe, relative to `MODELS`, that makes model folders without weights."""

OWN_FLAGS = frozenset(
    {"model", "served-model-name", "revision", "tokenizer-revision", "max-model-len", "dtype"}
    | {"host", "port", "uds", "api-key", "data-parallel-size", "load-format"}
    | {"nnodes", "node-rank", "master-addr", "master-port", "headless"}
)
"""Flags that the server object sets itself, from the card's other fields; a card's `server.flags` may not."""


_SHARDED = "server.flags.tensor-parallel-size (times pipeline-parallel-size)"


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one role (actor, inducer) samples, and how much it may write.

    Attributes:
        string_tokens: longest string argument of a tool call, in tokens; the call's grammar enforces it.
        thinking_tokens: budget of the thinking region, in tokens; 0 turns thinking off.
        temperature: sampling temperature; `None` leaves it to the engine (vLLM: 1.0).
        top_p: nucleus sampling, a share of probability mass; `None` leaves it to the engine (vLLM: 1.0).
        top_k: sample from the k likeliest tokens; `None` leaves it to the engine (vLLM: all).
        max_calls: most requests of this role in one agent's work; `None` keeps the method's own limit.
        reasoning_effort: hosted models only (paper, Appendix A.1: low for the actor, medium for the inducer).
    """

    string_tokens: Positive
    thinking_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Share | None = None
    top_k: Positive | None = None
    max_calls: Positive | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None

    def calls(self, most: int) -> int:
        """Requests that the role may make where a method allows `most`."""
        return min(most, self.max_calls or most)


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The roles that a card sets; every other role (curriculum, critic, ...) uses the inducer's."""

    actor: Role
    inducer: Role


class ServerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How vLLM is started for a model.

    Attributes:
        flags: options of vLLM's API server without their leading dashes, with their value: `true` for a bare
            flag, `false` for its `--no-` form, a mapping for an option that takes JSON.
        env: environment variables of the server's processes.
    """

    flags: dict[str, bool | int | float | str | dict[str, Any]] = {}
    env: dict[str, str | int] = {}

    def arguments(self) -> list[str]:
        """`flags` as they stand on a command line."""
        arguments = []
        for flag, value in self.flags.items():
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            elif isinstance(value, dict):
                arguments += [f"--{flag}", msgspec.json.encode(value).decode()]
            else:
                arguments += [f"--{flag}", str(value)]
        return arguments


class Holds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many conversations of one length a replica's prefix cache keeps at the same time.

    Attributes:
        conversations: how many.
        tokens: the length of each.
        by: `arithmetic` (docs/gpu.md has the formula) or `measured`.
    """

    conversations: Positive
    tokens: Positive
    by: Literal["arithmetic", "measured"]


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model: where it is, how it is served, how its roles sample, and what its tokens cost.

    The weights are named in exactly one of three ways: `path`, `id` with `revision`, or `base_url`.

    Attributes:
        name: the name under which the engine serves it, and which requests carry as `model`.
        tried: what was tried with this card, on what, and what was not.
        remark: what a person has to be told with its results; below each table of them, and in exports.
        context: the longest prompt plus completion, in tokens.
        roles: sampling and budgets per role.
        prices: USD per million tokens.
        path: folder with the weights; a relative one counts from the checkout.
        recipe: script that makes `path`, relative to `models/`; before each start it is run as
            `python RECIPE --out FOLDER`, and leaves alone a folder that is up to date.
        id: the model's id on the Hugging Face hub.
        revision: commit of that repository, so that a run says exactly what it ran; a branch may move.
        base_url: address of a hosted model's OpenAI-compatible API; nothing is started for it.
        api_key_env: environment variable that holds the hosted model's API key.
        route: `tokens` sends token ids and a grammar of ours to `/v1/completions`; `chat` sends messages and
            tools to `/v1/chat/completions` (hosted models; on vLLM, its built-in tool calls), `responses` to
            `/v1/responses` (hosted models that reason between calls).
        tool_format: how the model writes a tool call natively; needed on the tokens route.
        thinking: how a thinking region opens: the model has `none`, writes `<think>` itself (`generated`), or
            finds it at the end of its prompt (`prompted`).
        dtype: number type of weights and activations.
        cache: what the prefix cache keeps: `attention` (any prefix, in whole blocks), or `hybrid` (linear
            attention, whose states are kept only at the ends of prompts, in units of `match_unit`).
        holds: how many conversations that is, on the smallest GPUs that the card is for.
        gpus: GPUs that one replica takes; 0 for a CPU or a hosted model.
        nodes: machines over which the model is spread, in equal parts, where it needs more GPUs than one has.
        replicas: copies of the model behind one address (data parallel). Each has a cache of its own; the
            request header `X-data-parallel-rank` chooses one.
        load_format: `dummy` loads random weights into the model's true shape; nothing is downloaded.
        shape: the name of that shape, as `models/shapes/build.py` knows it.
        server: vLLM's own options.
    """

    name: str
    tried: Annotated[str, msgspec.Meta(min_length=1)]
    context: Positive
    roles: Roles
    prices: Prices
    remark: str = ""
    path: str | None = None
    recipe: str | None = None
    id: str | None = None
    revision: Commit | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    route: Route = "tokens"
    tool_format: ToolFormatName | None = None
    thinking: Literal["none", "generated", "prompted"] = "none"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    cache: Literal["attention", "hybrid"] = "attention"
    holds: list[Holds] = []
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    nodes: Positive = 1
    replicas: Positive = 1
    load_format: Literal["auto", "dummy"] = "auto"
    shape: str | None = None
    server: ServerOptions = ServerOptions()

    def role(self, name: str) -> Role:
        """Sampling and budgets of a role: the actor's, or for any other name the inducer's."""
        return self.roles.actor if name == "actor" else self.roles.inducer

    @property
    def hosted(self) -> bool:
        """Whether someone else serves the model, so that no server is started for it."""
        return self.base_url is not None

    @property
    def gpus_of_a_node(self) -> int:
        """GPUs that its server takes on each machine."""
        return self.gpus * self.replicas // self.nodes

    @property
    def match_unit(self) -> int | None:
        """Tokens in whose multiples prefix-cache hits end; `None` where the engine chooses its block."""
        unit = self.server.flags.get("prefix-match-unit", self.server.flags.get("block-size"))
        return unit if isinstance(unit, int) else None

    def arguments(self) -> list[str]:
        """What the card adds to the server's command: replicas, weights, and `server.flags`."""
        replicas = ["--data-parallel-size", str(self.replicas)] if self.replicas > 1 else []
        weights = ["--load-format", self.load_format] if self.load_format != "auto" else []
        return [*replicas, *weights, *self.server.arguments()]


class _OnceEach(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is set twice, again in line {line}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def list_cards() -> list[str]:
    """Names of the cards in `models/`, sorted."""
    return sorted(path.stem for path in MODELS.glob("*.yaml"))


def load_card(name_or_path: str) -> ModelCard:
    """Read and check a card.

    Args:
        name_or_path: name of a card in `models/`, or the path of any `.yaml` file.

    Raises:
        InvalidCard: there is no such card, or it says something it must not.
    """
    is_path = name_or_path.endswith((".yaml", ".yml"))
    file = Path(name_or_path).expanduser() if is_path else MODELS / f"{name_or_path}.yaml"
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _OnceEach)
    except FileNotFoundError:
        if is_path:
            raise InvalidCard(f"no model card at {file}") from None
        known = list_cards()
        raise InvalidCard(
            f"no model card is called {name_or_path!r}{suggest(name_or_path, known)}; "
            f"known: {', '.join(known)}; the path of a .yaml file will do too"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidCard(f"model card {file} cannot be read: {' '.join(str(error).split())}") from None
    try:
        return _card(content)
    except WrongData as error:
        raise InvalidCard(f"model card {file}: {error}") from None


def adapted(
    card: ModelCard,
    replicas: int | None = None,
    load_format: str | None = None,
    prefix_caching: bool | None = None,
    roles: Mapping[str, Mapping[str, Any]] | None = None,
) -> ModelCard:
    """The card with other `replicas`, another `load_format`, with prefix caching or without (`None` or `auto`
    keeps what it says), and other values of its roles' fields, by role.

    Raises `InvalidCard` if the card does not allow it.
    """
    changes = {"replicas": replicas, "load_format": load_format}
    given = {name: value for name, value in changes.items() if value not in (None, "auto")}
    content = msgspec.to_builtins(card) | given
    if prefix_caching is not None:
        content["server"]["flags"]["enable-prefix-caching"] = given["prefix_caching"] = prefix_caching
    for role, values in (roles or {}).items():
        content["roles"][role] |= values
        given |= {f"{role}.{name}": value for name, value in values.items()}
    try:
        return _card(content)
    except WrongData as error:
        settings = " ".join(f"model.{name}={value}" for name, value in given.items())
        raise InvalidCard(f"{settings} does not go with model {card.name!r}: {error}") from None


def model_path(card: ModelCard) -> str:
    """What vLLM takes as `--model`: a folder's path, or a hub id. Raises `InvalidCard` for a hosted model."""
    if card.id is not None:
        return card.id
    if card.path is None:
        raise InvalidCard(f"model {card.name!r} is hosted at {card.base_url}: it cannot be started here")
    return str(CHECKOUT / Path(card.path).expanduser())


def recipe_command(card: ModelCard) -> list[str] | None:
    """The command that makes the model's folder; `None` where the card has no recipe."""
    if card.recipe is None:
        return None
    shape = ["--shape", str(card.shape)] if card.load_format == "dummy" else []
    return [sys.executable, str(MODELS / card.recipe), *shape, "--out", model_path(card)]


def prepare(card: ModelCard, progress: Callable[[str], None]) -> str:
    """Make sure that the model can be loaded; make it with the card's recipe where it has one.

    Args:
        progress: called with each line that the recipe prints.

    Returns:
        What vLLM takes as `--model`; see `model_path`.

    Raises:
        InvalidCard: the card names a hosted model, or a folder that is missing and has no recipe.
        ServerFailed: the recipe failed.
    """
    path = model_path(card)
    if (command := recipe_command(card)) is not None:
        run_recipe(card.name, command, progress)
    if path != card.id and not Path(path).is_dir():
        bundled = MODELS in Path(path).parents
        advice = (
            f"`git checkout -- {path}` restores it" if bundled else "download it or correct the card's `path`"
        )
        raise InvalidCard(f"model {card.name!r}: there is no folder {path}; {advice}")
    return path


def run_recipe(model: str, command: list[str], progress: Callable[[str], None]) -> None:
    """Run the command that makes a model's folder.

    Args:
        progress: called with each line that it prints.

    Raises:
        ServerFailed: it failed; with its last line and the command.
    """
    last = "no output"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                last = line.strip()
                progress(last)
    if process.returncode != 0:
        raise ServerFailed(
            f"the recipe of model {model!r} failed with status {process.returncode}: {last} "
            f"(command: {shlex.join(command)})"
        )


def _card(content: object) -> ModelCard:
    """A card whose fields go together; one without weights has its shape's folder in their place."""
    card = record(ModelCard, content)
    if problems := list(_contradictions(card)):
        raise WrongData(*problems)
    if card.load_format != "dummy":
        return card
    folder = f".cache/models/{card.shape}-shape"
    return msgspec.structs.replace(card, path=folder, recipe=SHAPES, id=None, revision=None)


def _contradictions(card: ModelCard) -> Iterator[str]:
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
    ours = ("cache", "holds", "gpus", "nodes", "replicas", "load_format", "shape", "server")
    plain = ModelCard(
        name=card.name, tried=card.tried, context=card.context, roles=card.roles, prices=card.prices
    )
    return ", ".join(f"`{name}`" for name in ours if getattr(card, name) != getattr(plain, name))
