"""`speedrunner probe`: what an engine does with tool calls, and what its prefix cache gives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import typer

from serving.cards import ModelCard, Role, Roles
from serving.deployment import Deployment, deploy
from serving.errors import ContextOverflow, RequestRefused, ServerFailed
from serving.meter import Spending
from serving.probes.cache import CacheReport, CacheRequest, probe_cache
from serving.probes.tools import ToolsReport, probe_tools
from speedrunner.cli.command import AsJson, Status, carry_out_showing, server_log
from speedrunner.config.check import InvalidConfig
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config
from speedrunner.console import visible
from speedrunner.runs.setup import actor_card, service_options

THINKING_TOKENS = 64
"""Budget of --thinking where the card's actor has none."""

app = typer.Typer(help="Show what an engine really does.", no_args_is_help=True)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="The model (model=NAME), and a server of it that runs (serving.url=...); without that, one is"
        " started.",
        show_default=False,
    ),
]


@app.command()
def tools(
    overrides: Overrides = None,
    count: Annotated[int, typer.Option(min=1, help="Probes in all.")] = 500,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 16,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Let the model think; by default as the card's actor."),
    ] = None,
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Let vLLM's own tool calls answer, for comparison.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a battery of tool-call probes, and count the calls that are valid, invalid, and cut.

    The exit status is 1 when one is not valid. With --built-in or a hosted model there is no such target.

    Example: speedrunner probe tools model=tiny --count 100
    """
    config = compose(overrides or [])
    card = actor_card(config)
    if built_in:
        card = with_built_in_calls(card)
    role = thinking_role(card, thinking)

    async def work(status: Status) -> ToolsReport:
        async with _deployed(card, config, status) as deployment:
            spending = Spending(config.serving.spending_cap_usd)
            async with deployment.client(lambda row: None, spending=spending) as model:
                try:
                    return await probe_tools(
                        model, role, count, in_flight, lambda done: status(f"{done} of {count} probes")
                    )
                except RequestRefused as error:
                    if not built_in or deployment.server is not None:
                        raise
                    raise ServerFailed(
                        f"the server at {deployment.endpoint} refuses built-in tool calls ({error}); start it"
                        f" with --enable-auto-tool-choice --tool-call-parser {card.tool_format or 'NAME'}"
                    ) from error

    report = carry_out_showing(work)
    total = report.total
    met = total.valid == count if card.route == "tokens" else None
    if as_json:
        typer.echo(json.dumps(_tools_json(card, role, in_flight, report, met)))
    else:
        typer.echo(visible(_tools_text(card, role, in_flight, report, met)))
    if met is False:
        raise typer.Exit(1)


@app.command()
def cache(
    overrides: Overrides = None,
    turns: Annotated[int, typer.Option(min=2, help="Requests of the conversation.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Send known conversations, and compare the cached tokens with the most that the cache can give.

    The exit status is 1 when that is less than 99 % (attention) or 97 % (hybrid models).

    Example: speedrunner probe cache model=tiny
    """
    config = compose(overrides or [])
    card = actor_card(config)
    if card.route != "tokens":
        raise InvalidConfig(
            f"model {card.name!r} is on the chat route: what its cache could give is not known"
        )

    async def work(status: Status) -> CacheReport:
        async with _deployed(card, config, status) as deployment:
            status("probing the prefix cache")
            try:
                return await probe_cache(deployment, turns)
            except ContextOverflow as error:
                raise InvalidConfig(f"--turns {turns} are too many: {error}") from error

    report = carry_out_showing(work)
    if as_json:
        typer.echo(json.dumps(_cache_json(card, report)))
    else:
        typer.echo(visible(_cache_text(card, report)))
    if not report.met:
        raise typer.Exit(1)


def thinking_role(card: ModelCard, thinking: bool | None) -> Role:
    """The actor's role with the thinking that is asked for. Raises `InvalidConfig`."""
    role = card.role("actor")
    if thinking and card.route == "chat":
        raise InvalidConfig("--thinking is for the tokens route: on the chat route it has no budget")
    if thinking and card.thinking == "none":
        raise InvalidConfig(f"--thinking: model {card.name!r} does not think (its card says thinking: none)")
    if thinking is None:
        return role
    tokens = (role.thinking_tokens or THINKING_TOKENS) if thinking else 0
    return msgspec.structs.replace(role, thinking_tokens=tokens)


def with_built_in_calls(card: ModelCard) -> ModelCard:
    """The card on the chat route, and its server with what vLLM's own calls need. Raises `InvalidConfig`."""
    if card.hosted:
        raise InvalidConfig(f"--built-in is for a vLLM server, and model {card.name!r} is hosted")
    silent = msgspec.structs.replace(card.roles.actor, thinking_tokens=0)
    needed: dict[str, Any] = {"enable-auto-tool-choice": True}
    if card.tool_format is not None:
        needed["tool-call-parser"] = card.tool_format  # the parsers have the formats' names
    if card.thinking != "none":
        needed["default-chat-template-kwargs"] = {"enable_thinking": False}
    server = msgspec.structs.replace(card.server, flags={**needed, **card.server.flags})
    return msgspec.structs.replace(
        card, route="chat", roles=Roles(actor=silent, inducer=silent), server=server
    )


@asynccontextmanager
async def _deployed(card: ModelCard, config: Config, status: Status) -> AsyncIterator[Deployment]:
    """The card's engine: the running one that the configuration names, or one of our own."""
    # Nothing is held back, as what is measured is the engine.
    options = msgspec.structs.replace(service_options(config), admission=False)
    async with deploy(card, options, log=server_log("probe", card), say=status, waiting=status) as deployment:
        yield deployment


def _tools_json(
    card: ModelCard, role: Role, in_flight: int, report: ToolsReport, met: bool | None
) -> dict[str, Any]:
    return {
        "model": card.name,
        "route": card.route,
        "thinking_tokens": role.thinking_tokens,
        "in_flight": in_flight,
        **msgspec.to_builtins(report.total),
        "constrained_tokens_per_s": report.constrained.tokens_per_s,
        "free_tokens_per_s": report.free.tokens_per_s,
        "overhead": report.overhead,
        "kinds": msgspec.to_builtins(report.kinds),
        "problems": report.problems,
        "met": met,
    }


def _tools_text(card: ModelCard, role: Role, in_flight: int, report: ToolsReport, met: bool | None) -> str:
    total = report.total
    thought = f"{role.thinking_tokens} tokens of thinking" if role.thinking_tokens else "no thinking"
    lines = [
        f"{card.name}: {total.all} probes on the {card.route} route, {in_flight} in flight, {thought}",
        f"{'probe':16}{'valid':>8}{'invalid':>9}{'truncated':>11}",
    ]
    for kind, counts in {**report.kinds, "all": total}.items():
        lines.append(f"{kind:16}{counts.valid:8}{counts.invalid:9}{counts.truncated:11}")
    lines += [f"not valid, such as: {problem}" for problem in report.problems]
    constrained, free = report.constrained.tokens_per_s, report.free.tokens_per_s
    if constrained is None:
        lines.append("Tokens per second: not measured by so few probes.")
    elif free is None or report.overhead is None:
        lines.append(f"Output tokens per second: {constrained:.0f}.")
    else:
        lines.append(
            f"Output tokens per second: {constrained:.0f} constrained, {free:.0f} free (same prompts and"
            f" lengths, in turn): {report.overhead:.2f} of it."
        )
    if met is not None:
        lines.append(f"Target: no call invalid or truncated: {'met' if met else 'MISSED'}.")
    return "\n".join(lines)


def _cache_json(card: ModelCard, report: CacheReport) -> dict[str, Any]:
    return {
        "model": card.name,
        "cache": msgspec.to_builtins(report.cache),
        "expected": report.expected,
        "reported": report.reported,
        "share_of_maximum": report.share_of_maximum,
        "target": report.target,
        "met": report.met,
        "advice": report.advice,
        "turns": msgspec.to_builtins(report.turns),
        "siblings": msgspec.to_builtins(report.siblings),
    }


def _cache_text(card: ModelCard, report: CacheReport) -> str:
    cache = report.cache
    kind = "hybrid" if cache.hybrid else "attention"
    state = "" if cache.enable_prefix_caching else ", OFF"
    lines = [
        f"{card.name}: {kind} cache of {cache.num_gpu_blocks} blocks of {cache.block_size} tokens, matched in"
        f" units of {cache.match_unit}{state}",
        f"{'cached tokens':16}{'prompt':>8}{'expected':>10}{'reported':>10}",
    ]
    turns = [(f"turn {number}", each) for number, each in enumerate(report.turns, start=1)]
    siblings = [(f"sibling {number}", each) for number, each in enumerate(report.siblings, start=1)]
    whole = CacheRequest(
        prompt=sum(each.prompt for _, each in (*turns, *siblings)),
        expected=report.expected,
        reported=report.reported,
    )
    for name, each in (*turns, *siblings, ("all", whole)):
        lines.append(f"{name:16}{each.prompt:8}{each.expected:10}{each.reported:10}")
    lines.append(f"(siblings share a prefix of {report.prefix} tokens, which was sent alone before)")
    lines += [f"To change: {each}" for each in report.advice]
    lines.append(
        f"Target: at least {report.target:.0%} of the maximum: {report.share_of_maximum:.2%},"
        f" {'met' if report.met else 'MISSED'}."
    )
    return "\n".join(lines)
