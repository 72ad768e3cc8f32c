"""Crafter: an actor that strays and tries things, and a programmer who makes a pickaxe of it."""

from __future__ import annotations

import ast
import random
import re

from serving.tokens.tools import ToolCall
from tests.speedrunner.methods.proof.study import Session, Study, Tools, use

MOVES = ("move_north", "move_south", "move_east", "move_west")


def weak(told: list[str], tools: Tools) -> ToolCall:
    """Looks before each action; strays, half the time to a tree in sight; tries to collect and to make."""
    if "You face" not in told[-1]:
        return use("get_current_observation")
    rng = random.Random(f"{told[0]} {len(told)}")
    if "You face tree" in told[-1] and rng.random() < 0.8:
        return use("do")
    if "- wood:" in told[-1] and rng.random() < 0.2:
        return use(rng.choice(["place_table", "make_wood_pickaxe", "make_wood_sword"]))
    tree = re.search(r"- tree (?:\d steps? (north|south))?(?: and )?(?:\d steps? (east|west))?", told[-1])
    if tree and rng.random() < 0.5:
        return use(f"move_{rng.choice([way for way in tree.groups() if way])}")
    if rng.random() < 0.2:
        return use(rng.choice(["do", "noop", "place_stone", "place_plant"]))
    straying = random.Random(f"{told[0]} {len(told) // 20}")
    return use(straying.choice(MOVES))


LOOK = r"""import re
from collections import Counter

plays = load_trajectories()
print(opening(plays[0]))

def events(play):
    "Each action between two observations: (before, name, after)."
    before, name = opening(play), None
    for _, _, call in calls(play):
        if call["result"] is None:
            name = call["name"]
        elif name:
            yield before, name, call["result"]
            before, name = call["result"], None

def owned(text):
    return dict((name, int(n)) for name, n in re.findall(r"- (\w+): (\d+)$", text, re.MULTILINE))

def front(text):
    return re.search(r"You face (\w+)", text)[1]

gains = Counter()
for play in plays:
    for before, name, after in events(play):
        had, has = owned(before), owned(after)
        change = {what: has.get(what, 0) - had.get(what, 0) for what in {*had, *has}}
        if name.startswith(("do", "place", "make")):
            gains[name, front(before), str({what: n for what, n in sorted(change.items()) if n})] += 1
for row, times in sorted(gains.items()):
    print(times, *row)"""

NEEDS = r"""def things(text):
    "Name -> (cells to the east, cells to the south) of the nearest of each kind."
    found = {}
    for name, n, ns, m, ew in re.findall(
        r"- (\w+) (?:(\d) steps? (north|south))?(?: and )?(?:(\d) steps? (east|west))?$", text, re.MULTILINE
    ):
        found[name] = int(m or 0) * (-1 if ew == "west" else 1), int(n or 0) * (-1 if ns == "north" else 1)
    return found

tables, put_on, pickaxes, costs = Counter(), Counter(), Counter(), {"table": set(), "pickaxe": set()}
for play in plays:
    for before, name, after in events(play):
        had, has = owned(before), owned(after)
        wood, table = had.get("wood", 0), things(before).get("table")
        far = max(map(abs, table)) if table else None
        cost = wood - has.get("wood", 0)
        if name == "place_table":
            tables[wood, "made" if cost > 0 else "not made"] += 1
            if cost > 0:
                costs["table"].add(cost)
                put_on[front(before)] += 1
        elif name == "make_wood_pickaxe" and wood:
            pickaxes[far, "made" if cost > 0 else "not made"] += 1
            costs["pickaxe"].add(cost)
print("tables by wood:", sorted(tables.items()))
print("put where there was:", dict(put_on), "; wood taken:", costs)
print("pickaxes by the table's distance:", sorted(pickaxes.items(), key=str))
least = min(wood for wood, came in tables if came == "made")
far = max(cells for cells, came in pickaxes if came == "made")
needed = max(least, max(costs["table"]) + max(costs["pickaxe"]))
print({"wood": needed, "placeable": sorted(put_on), "far": far})"""

WALKS = r"""WAYS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
FIXED = ("tree", "water", "stone", "table")
walked = Counter()
for play in plays:
    facing = None
    for before, name, after in events(play):
        way = name.removeprefix("move_")
        if way in WAYS and way == facing:
            dx, dy = WAYS[way]
            seen, then = things(before), things(after)
            both = [what for what in FIXED if what in seen and what in then]
            if any(then[what] == (seen[what][0] - dx, seen[what][1] - dy) for what in both):
                walked[front(before), "walked"] += 1
            elif both and all(then[what] == seen[what] for what in both):
                walked[front(before), "stayed"] += 1
        facing = way if way in WAYS else facing
print(sorted(walked.items()))
kinds = sorted({kind for kind, _ in walked})
print([kind for kind in kinds if walked[kind, "walked"] > walked[kind, "stayed"]])"""

SOLVER = r'''import random
import re

WAYS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
WALKABLE = WALKABLE_KINDS
PLACEABLE = PLACEABLE_KINDS
CREATURES = ("zombie", "skeleton")

def _look() -> dict:
    """Read what is seen: `owned` (name -> number), `front`, and `near` (name -> cells east and south)."""
    text, near = get_current_observation(), {}
    line = r"- (\w+) (?:(\d) steps? (north|south))?(?: and )?(?:(\d) steps? (east|west))?$"
    for name, n, ns, m, ew in re.findall(line, text, re.MULTILINE):
        near[name] = int(m or 0) * (-1 if ew == "west" else 1), int(n or 0) * (-1 if ns == "north" else 1)
    owned = {name: int(n) for name, n in re.findall(r"- (\w+): (\d+)$", text, re.MULTILINE)}
    return {"owned": owned, "front": re.search(r"You face (\w+)", text)[1], "near": near}

def _move(way: str) -> None:
    """Face a way and take a step, if that is possible."""
    if way == "north":
        move_north()
    elif way == "south":
        move_south()
    elif way == "east":
        move_east()
    else:
        move_west()

def _choose(seen: dict, kind: str, facing: str) -> str:
    """Return the way to the nearest of a kind, or on; another one where that is blocked."""
    closed = [cell for name, cell in seen["near"].items() if name not in WALKABLE and name != kind]
    free = [way for way, step in WAYS.items() if step not in closed]
    if seen["front"] not in WALKABLE and facing in free:
        free.remove(facing)
    east, south = seen["near"].get(kind, (0, 0))
    towards = [way for way in free if WAYS[way][0] * east + WAYS[way][1] * south > 0]
    if towards:
        return max(towards, key=lambda way: WAYS[way][0] * east + WAYS[way][1] * south)
    return facing if facing in free and kind not in seen["near"] else random.choice(free or list(WAYS))

def _reach(kind: str, tries: int) -> bool:
    """Walk until something of a kind is right ahead. Returns whether it is."""
    way = random.choice(list(WAYS))
    for _ in range(tries):
        seen = _look()
        if seen["front"] == kind:
            return True
        if seen["front"] in CREATURES:
            do()
            continue
        way = _choose(seen, kind, way) if random.random() < 0.9 else random.choice(list(WAYS))
        _move(way)
    return False

def collect(kind: str, number: int) -> int:
    """Walk to the nearest of a kind, such as "tree", and collect from it, until so many units were gained.
    Returns how many were."""
    start = sum(_look()["owned"].values())
    for _ in range(20 * number):
        if sum(_look()["owned"].values()) - start >= number or not _reach(kind, 600):
            break
        do()
    return sum(_look()["owned"].values()) - start

def get_wood_pickaxe() -> str:
    """Collect wood, place a table, and make a wood pickaxe. Begin with it. Returns what you own then, or
    what is missing."""
    for _ in range(5):
        wood = _look()["owned"].get("wood", 0)
        if wood < NEEDED:
            collect("tree", NEEDED - wood)
        if _look()["owned"].get("wood", 0) >= NEEDED:
            break
    for _ in range(60):
        if _look()["front"] in PLACEABLE:
            before = _look()["owned"].get("wood", 0)
            place_table()
            if _look()["owned"].get("wood", 0) < before:
                break
        _move(random.choice(list(WAYS)))
    make_wood_pickaxe()
    owned = _look()["owned"]
    return f"You own {owned}." if "wood_pickaxe" in owned else f"There is no pickaxe yet; you own {owned}."'''

TRIAL = r"""library.random.seed(0)
read = Counter()
for play in plays:
    for before, _, _ in events(play):
        library.get_current_observation = lambda: before
        seen = library._look()
        way = library._choose(seen, "tree", "north")
        east, south = seen["near"].get("tree", (0, 0))
        nearer = WAYS[way][0] * east + WAYS[way][1] * south > 0
        read["tree in sight" if east or south else "none", "goes nearer" if nearer else "goes elsewhere"] += 1
print(read)"""


def session() -> Session:
    """What actions change, what table and pickaxe need, where one can walk; skills; do they read all that was
    seen?"""
    said = yield use("execute_code", code=LOOK)
    assert "do tree {'wood': 1}" in said
    said = yield use("execute_code", code=NEEDS)
    needs = ast.literal_eval(said.splitlines()[-1])
    assert needs["far"] == 1, said  # the table that was just placed is near enough
    said = yield use("execute_code", code=WALKS)
    walkable = ast.literal_eval(said.splitlines()[-1])
    found = {
        "WALKABLE_KINDS": tuple(walkable),
        "PLACEABLE_KINDS": tuple(needs["placeable"]),
        "NEEDED": needs["wood"],
    }
    source = SOLVER
    for name, value in found.items():
        source = source.replace(name, str(value))
    said = yield use("write_skill", source=source, public=False)
    assert "was added" in said
    said = yield use("execute_code", code=TRIAL)
    assert "goes nearer" in said
    yield use("set_visibility", name="get_wood_pickaxe", public=True)
    yield use("set_visibility", name="collect", public=True)
    yield use("list_skills", first=0)
    yield use(
        "finish",
        summary="get_wood_pickaxe needs one call; collect is there for more of a kind. What a table takes,"
        " where it can be put and where one can walk is counted from what was played.",
    )


def user(told: list[str], tools: Tools) -> ToolCall:
    """Calls the skill until it has the pickaxe."""
    return use("noop" if "wood_pickaxe" in told[-1] else "get_wood_pickaxe")


STUDY = Study(env=("env=crafter",), rollouts=10, weak=weak, session=session, user=user)
