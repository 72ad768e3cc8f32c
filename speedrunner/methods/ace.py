"""Agentic Context Engineering, online: a playbook in the actor's prompt that changes by small deltas.

After Zhang et al., "Agentic Context Engineering" (arXiv 2510.04618), without repeated passes over tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec

from speedrunner.methods import (
    ActorSpec,
    History,
    Library,
    Method,
    Policy,
    Sees,
    SleepTools,
    Task,
    TextEnv,
    Tool,
    ToolError,
    newest_batch,
    render,
    shared_parts,
    trajectory_text,
)
from speedrunner.store.policies import decode_state

PLAYBOOK_SHARE = 0.125
"""Maximum share of the context for the playbook: the actor's context, or the curator's if that is less."""


class Addition(TypedDict):
    """A new item of the playbook."""

    section: Literal["strategy", "fact", "mistake"]
    text: str


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of the playbook, with the number of episodes in which it helped or harmed."""

    number: int
    section: str
    text: str
    helpful: int = 0
    harmful: int = 0


class Playbook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The items, oldest first, and the number of the next one. No number is used twice."""

    items: list[Item] = []
    next: int = 1

    def text(self, *, counted: bool = False) -> str:
        """Return the playbook, with its counters for the curator alone; empty without items."""
        return render(__package__, "ace/playbook", items=self.items, counted=counted) if self.items else ""

    def count(self, helpful: list[int], harmful: list[int]) -> Playbook:
        """Return it with the counters of these items increased by one episode."""
        items = [
            msgspec.structs.replace(
                item,
                helpful=item.helpful + (item.number in helpful),
                harmful=item.harmful + (item.number in harmful),
            )
            for item in self.items
        ]
        return Playbook(items, self.next)

    def change(self, remove: list[int], add: list[Addition]) -> Playbook:
        """Return it without some items and with new ones, whose counters begin at 0. Raises `ToolError`."""
        self.check_numbers(remove)
        items = [item for item in self.items if item.number not in remove]
        number = self.next
        for addition in add:
            text = " ".join(addition["text"].split())
            if not text:
                raise ToolError("an item to add has no text")
            if text not in [item.text for item in items]:
                items.append(Item(number, addition["section"], text))
                number += 1
        return Playbook(items, number)

    def check_numbers(self, numbers: list[int]) -> None:
        """Raise `ToolError` if one of these numbers is no item's."""
        if unknown := sorted({*numbers} - {item.number for item in self.items}):
            raise ToolError(f"the playbook has no item {', '.join(map(str, unknown))}")


@dataclass(kw_only=True)
class ACE(Method):
    """A method that learns prose by small changes: a reflector reads each episode, a curator edits the
    playbook.

    Attributes:
        sees: what the reflector sees of an outcome.
        add_only: whether the curator can only add items, as in the authors' program.
    """

    sees: Sees = "score"
    add_only: bool = False

    def initial(self) -> Policy:
        """Return a policy with an empty playbook."""
        return Policy(version=0, method=msgspec.to_builtins(Playbook()))

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return an actor with the primitives and the playbook."""
        return ActorSpec(Library(env.primitives), decode_state(policy, Playbook, "playbook of ACE").text())

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Let the reflector and the curator work on one episode of the batch after another.

        Raises:
            InvalidPolicy: the stored playbook is damaged.
            ServingError: the engine failed.
        """
        playbook = before = decode_state(policy, Playbook, "playbook of ACE")
        for played in newest_batch(history):
            read = Playbook([item for item in playbook.items if item.number < before.next])
            playbook, lessons = await self._reflect(playbook, read, trajectory_text(played), tools)
            if lessons:
                playbook = await self._curate(playbook, lessons, tools)
        numbers, old = ({item.number for item in kept.items} for kept in (playbook, before))
        if numbers != old:
            tools.changed = f"playbook items: {len(numbers - old)} added, {len(old - numbers)} removed"
        return msgspec.structs.replace(policy, notes=playbook.text(), method=msgspec.to_builtins(playbook))

    async def _reflect(
        self, playbook: Playbook, read: Playbook, episode: str, tools: SleepTools
    ) -> tuple[Playbook, str]:
        """Return the playbook with new counts, and the lessons; "" without a report.

        Args:
            read: the items that the actor had read.
        """
        counted, learned = playbook, ""

        def report_lessons(lessons: str, helpful: list[int], harmful: list[int]) -> str:
            """Report what the episode teaches. `helpful` and `harmful` are the numbers of the playbook's
            items that helped or harmed the actor in this episode."""
            nonlocal counted, learned
            if not lessons.strip():
                raise ToolError("the lessons are empty")
            read.check_numbers([*helpful, *harmful])
            counted, learned = playbook.count(helpful, harmful), lessons.strip()
            return "The lessons were passed on."

        await self._ask("reflector", report_lessons, tools, playbook=read.text(), episode=episode)
        return counted, learned

    async def _curate(self, playbook: Playbook, lessons: str, tools: SleepTools) -> Playbook:
        """Return the playbook that the curator made of it."""
        changed, count = playbook, tools.model.count_tokens
        most = int(min(tools.limits.context, tools.model.model_config.context) * PLAYBOOK_SHARE)

        def change_playbook(remove: list[int], add: list[Addition]) -> str:
            """Remove the items with these numbers, then add new items. Both lists can be empty."""
            nonlocal changed
            edited = playbook.change(remove, add)
            if add and (tokens := count(edited.text())) > most:
                advice = "Add" if self.add_only else "Remove more items, or add"
                raise ToolError(
                    f"nothing was changed: the playbook would have {tokens:,} tokens, and it can have at most"
                    f" {most:,}. {advice} fewer or shorter ones"
                )
            changed = edited
            return "The playbook was changed."

        def add_items(add: list[Addition]) -> str:
            """Add new items to the playbook. The list can be empty."""
            return change_playbook([], add)

        await self._ask(
            "curator",
            add_items if self.add_only else change_playbook,
            tools,
            playbook=playbook.text(counted=True),
            lessons=lessons,
            used=count(playbook.text()),
            most=most,
        )
        return changed

    async def _ask(self, role: str, tool: Tool, tools: SleepTools, **inputs: Any) -> None:
        parts = shared_parts(tools.env, tools.limits)
        system = render(__package__, f"ace/{role}_system", **parts, add_only=self.add_only)
        user = render(__package__, f"ace/{role}_user", **inputs)
        await tools.ask(role, system, user, tool)
