"""Observations are the paper's, letter for letter (Appendix D.3)."""

from __future__ import annotations

from typing import Any

from envs.crafter import describe

PAPERS = """\
<<OBSERVATION_BEGIN>>
Your status:
- health: 7/9
- food: 5/9
- drink: 6/9
- energy: 8/9
Your inventory:
- wood: 3
- stone: 1
- wood_pickaxe: 1
You see:
- grass 1 step north
- tree 2 steps north and 1 step east
- stone 3 steps east
- zombie 4 steps north and 2 steps west
- water 4 steps south and 3 steps east
You face grass at your front.
<<OBSERVATION_END>>"""
"""The paper's sample; the water, which stands 5 steps south there, beyond the window, is at 4."""


def window(**cells: tuple[int, int]) -> list[str]:
    """Nine rows in which these cells (to the east, to the south) are on the map."""
    rows = [["out"] * 9 for _ in range(9)]
    rows[4][4] = "player"
    for name, (right, down) in cells.items():
        rows[4 + down][4 + right] = name
    return [",".join(row) for row in rows]


def seen(**changes: Any) -> dict[str, Any]:
    sight = {
        **{"health": 7, "food": 5, "drink": 6, "energy": 8},
        "inventory": {"wood": 3, "stone": 1, "wood_pickaxe": 1},
        "sleeping": False,
        "facing_target": "grass",
        "achievements": [],
        "window": window(zombie=(-2, -4), grass=(0, -1), tree=(1, -2), stone=(3, 0), water=(3, 4)),
    }
    return sight | changes


def test_the_papers_sample() -> None:
    assert describe(seen()) == PAPERS


def test_an_empty_inventory_nothing_visible_and_sleep_are_one_line_each() -> None:
    block = "Your inventory:\n- wood: 3\n- stone: 1\n- wood_pickaxe: 1\n"
    assert describe(seen(inventory={})) == PAPERS.replace(block, "You have nothing in your inventory.\n")
    lines = describe(seen(window=window())).splitlines()
    assert lines[10:] == ["You see nothing away from you.", "You face grass at your front.", lines[-1]]
    sleeping = "You are sleeping, and will not be able to take actions until energy is full."
    assert describe(seen(sleeping=True)) == PAPERS.replace("Your status:", f"{sleeping}\nYour status:")


class TestViews:
    MEADOW = [",".join(["grass"] * 9)] * 4 + ["grass,grass,grass,grass,player,cow,tree,grass,tree"]
    MEADOW += [",".join(["grass"] * 9)] * 3 + [",".join(["tree"] * 8 + ["cow"])]

    def listed(self, **view: Any) -> list[str]:
        lines = describe(seen(window=self.MEADOW), **view).splitlines()
        return lines[lines.index("You see:") + 1 : -2]

    def test_nearest_lists_each_kind_once_the_nearest_first_of_equals_the_western(self) -> None:
        assert self.listed() == ["- grass 1 step west", "- cow 1 step east", "- tree 2 steps east"]

    def test_all_tells_ripe_plants_and_unlocked_achievements(self) -> None:
        garden = window(**{"ripe plant": (1, 0), "plant": (2, 0)})
        state = seen(window=garden, facing_target="ripe plant", achievements=["collect_drink"])
        for view, plants, front in (
            ("all", ["- ripe plant 1 step east", "- plant 2 steps east"], "ripe plant"),
            ("nearest", ["- plant 1 step east"], "plant"),
        ):
            lines = describe(state, view).splitlines()  # type: ignore[arg-type]
            assert lines[lines.index("You see:") + 1 : -1] == [*plants, f"You face {front} at your front."]
            assert ("You have unlocked: Collect Drink." in lines) == (view == "all")

    def test_all_lists_every_cell_but_the_players_column_by_column(self) -> None:
        lines = self.listed(view="all")
        assert len(lines) == 80
        assert lines[:5] == [
            "- grass 4 steps north and 4 steps west",
            "- grass 3 steps north and 4 steps west",
            "- grass 2 steps north and 4 steps west",
            "- grass 1 step north and 4 steps west",
            "- grass 4 steps west",
        ]
        assert lines[-1] == "- cow 4 steps south and 4 steps east"
