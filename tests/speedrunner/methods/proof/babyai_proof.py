"""BabyAI: an actor that fumbles, and a programmer who makes a solver of what it left behind."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter

from serving.tokens.tools import ToolCall
from tests.speedrunner.methods.proof.study import Session, Study, Tools, use


def weak(told: list[str], tools: Tools) -> ToolCall:
    """Moves at random, but mostly walks up to what lies straight ahead, and picks it up half the time."""
    rng = random.Random(f"{told[0]} {len(told)}")
    ahead = re.search(r"(?:key|ball|box) (\d) steps? forward", told[-1])
    if ahead and rng.random() < 0.5:
        return use("pick_up" if ahead[1] == "1" else "go_forward")
    return use(rng.choice(["go_forward"] * 5 + ["turn_left", "turn_right", "pick_up"]))


WORDS = r"""import re
from collections import Counter

plays = load_trajectories()
NOUN = r"\b(\w+ (?:key|ball|box|door))\b"

def mission(play):
    return opening(play).partition("\n")[0].removeprefix("Your task: ")

def texts(play):
    return [opening(play).partition("\n\n")[2], *(call["result"] for _, _, call in calls(play))]

print(opening(plays[0]), "\n")
print(Counter(re.sub(NOUN, "X", mission(play)) for play in plays))
lines = Counter(line for play in plays for text in texts(play) for line in text.split("\n"))
forms = Counter()
for line, times in lines.items():
    forms[re.sub(r"steps?", "step", re.sub(r"\d+", "N", re.sub(NOUN, "X", line)))] += times
for form, times in forms.most_common():
    print(times, form)
for play in plays:
    if play["outcome"]["success"]:
        show(play, first=len(play["turns"]) - 1)"""

ORDER = r"""def first(truths, start=0):
    return next((n for n, truth in enumerate(truths) if n >= start and truth), None)

# If the parts had to be done in some order, an episode would end where the second is done after the first.
tally = Counter()
for play in plays:
    take, reach = (re.search(rf"{verb} (?:the|a) {NOUN}", mission(play))[1] for verb in ("pick up", "go to"))
    if take == reach:
        continue
    carries = [f"You carry a {take}" in text for text in texts(play)]
    faces = [f"a {reach} 1 step forward" in text for text in texts(play)]
    for order, parts in {"pick up, go to": (carries, faces), "go to, pick up": (faces, carries)}.items():
        start = first(parts[0])
        end = None if start is None else first(parts[1], start)
        if end is not None and not parts[1][start]:
            came = "ended" if play["outcome"]["success"] and end == len(carries) - 1 else "went on"
            tally["after you" if "after you" in mission(play) else "then", order, came] += 1
for row in sorted(tally.items()):
    print(row)"""

LAWS = r"""def places(text):
    "Things as (name, to the right, ahead)."
    found = re.findall(rf"{NOUN} (?:(\d+) steps? (left|right))?(?: and )?(?:(\d+) steps? forward)?", text)
    return {(name, int(n or 0) * (-1 if side == "left" else 1), int(m or 0)) for name, n, side, m in found}

def walls(text):
    return {side: int(n) for n, side in re.findall(r"a wall (\d+) steps? (\w+)", text)}

laws = {
    "turn_left": lambda x, y: (y, -x),
    "turn_right": lambda x, y: (-y, x),
    "go_forward": lambda x, y: (x, y - 1),
}
tally, width, farthest = Counter(), Counter(), [0, 0]
TURNS = ("turn_left", "turn_right")
for play in plays:
    for before, (_, _, call), after in zip(texts(play), calls(play), texts(play)[1:]):
        seen, then = places(before), places(after)
        ahead = {(x, y) for _, x, y in seen}
        free = (0, 1) not in ahead and walls(before).get("forward") != 1
        if call["name"] in laws and (free or call["name"] != "go_forward"):
            moved = {(name, *laws[call["name"]](x, y)) for name, x, y in seen}
            in_view = {each for each in moved if each[2] >= 0 and abs(each[1]) <= 3 and each[2:] != (0,)}
            tally[call["name"], "as expected" if in_view <= then else "otherwise"] += 1
        elif call["name"] == "go_forward":
            tally["go_forward against something", "nothing changed" if before == after else "changed"] += 1
        elif call["name"] == "pick_up" and (0, 1) in ahead and "carry" not in before:
            tally["pick_up", "carried" if "carry" in after else "not"] += 1
        for _, x, y in then:
            farthest = [max(farthest[0], abs(x)), max(farthest[1], y)]
    made = [call["name"] for _, _, call in calls(play)]
    for n in range(len(made) - 1):
        if made[n] == made[n + 1] and made[n] in TURNS:  # it turned about
            ends = [walls(texts(play)[at]).get("forward", 0) for at in (n, n + 2)]
            if all(ends):
                width[sum(ends) - 1] += 1
print(sorted(tally.items()))
print("cells between two walls:", width, "; farthest to a side and ahead:", farthest)"""

SOLVER = r'''import re
from collections import deque

FACES = ((0, 1), (1, 0), (0, -1), (-1, 0))
SIDE, AHEAD = VIEW_LIMITS

def _parse(mission: str) -> list[list[str]]:
    """Return the parts of a mission as [verb, thing], in the order in which they have to be done."""
    parts = [list(each) for each in re.findall(r"(pick up|go to) (?:the|a) (\w+ \w+)", mission)]
    ORDER_RULE

def _enter(world: dict, text: str) -> None:
    """Enter what is seen into the map: things by cell, and the room's ends by direction."""
    (x, y), (fx, fy) = world["at"], FACES[world["facing"]]
    world["carried"] = (re.findall(r"You carry an? (\w+ \w+)", text) or [""])[0]
    for side in range(-SIDE, SIDE + 1):
        for ahead in range(AHEAD + 1):
            cell = x + side * fy + ahead * fx, y - side * fx + ahead * fy
            world["seen"].add(cell)
            world["things"].pop(cell, None)
    for line in text.split("\n"):
        offset = {way: int(n) for n, way in re.findall(r"(\d+) steps? (left|right|forward)", line)}
        side, ahead = offset.get("right", 0) - offset.get("left", 0), offset.get("forward", 0)
        cell = x + side * fy + ahead * fx, y - side * fx + ahead * fy
        name = re.match(r"a (\w+ (?:key|ball|box))", line)
        if name and offset:
            world["things"][cell] = name[1]
        elif line.startswith("a wall "):
            turn = 1 if side > 0 else 3 if side < 0 else 0
            way = (world["facing"] + turn) % 4
            world["ends"][way] = cell[0] * FACES[way][0] + cell[1] * FACES[way][1]

def _step(world: dict, action: str) -> str:
    """Turn or move, and enter what is seen then."""
    if action == "left":
        text = turn_left()
        world["facing"] = (world["facing"] - 1) % 4
    elif action == "right":
        text = turn_right()
        world["facing"] = (world["facing"] + 1) % 4
    else:
        (x, y), (fx, fy) = world["at"], FACES[world["facing"]]
        text = go_forward()
        world["at"] = (x + fx, y + fy)
    _enter(world, text)
    return text

def _route(world: dict, goals: set) -> list[int]:
    """Return the directions of the shortest way to one of these cells; [] where there is none or no need."""
    queue, came = deque([world["at"]]), {world["at"]: []}
    while queue:
        cell = queue.popleft()
        if cell in goals:
            return came[cell]
        for way, (fx, fy) in enumerate(FACES):
            other = cell[0] + fx, cell[1] + fy
            ends = world["ends"].items()
            inside = all(other[0] * FACES[w][0] + other[1] * FACES[w][1] < end for w, end in ends)
            if other not in came and inside and other not in world["things"]:
                came[other] = came[cell] + [way]
                queue.append(other)
    return []

def _face(world: dict, way: int) -> None:
    """Turn to a direction."""
    while world["facing"] != way:
        _step(world, "left" if (world["facing"] - way) % 4 == 1 else "right")

def _approach(world: dict, thing: str) -> bool:
    """Walk until a thing is right ahead; look for it where nobody has looked. Returns whether it is there."""
    for _ in range(60):
        cells = [cell for cell, name in world["things"].items() if name == thing]
        beside = {(x - fx, y - fy): way for x, y in cells for way, (fx, fy) in enumerate(FACES)}
        if world["at"] in beside:
            _face(world, beside[world["at"]])
            return True
        x, y = world["at"]
        near = [(x + i, y + j) for i in range(-7, 8) for j in range(-7, 8)]
        route = _route(world, set(beside) or set(near) - world["seen"])
        if not route:
            return False
        _face(world, route[0])
        _step(world, "forward")
    return False

def solve_mission(mission: str) -> str:
    """Carry out a whole mission, given word for word, such as "pick up the red ball, then go to the blue
    key". Begin with it and use nothing else. Returns what was not found, where it fails."""
    world = {"at": (0, 0), "facing": 0, "things": {}, "ends": {}, "seen": set(), "carried": ""}
    for _ in range(4):
        _step(world, "right")
    for verb, thing in _parse(mission):
        if not _approach(world, thing):
            return f"There is no way to the {thing}."
        if verb == "pick up":
            _enter(world, pick_up())
            if world["carried"] != thing:
                return f"The {thing} cannot be picked up."
    return "All parts are done."'''

TRIAL = r"""import random

class Room:
    "What the records say of a room, as a program: two things in it, views, moves, the end."

    def __init__(self, number, text):
        self.rng = random.Random(number)
        cells = [(x, y) for x in range(SIZE) for y in range(SIZE)]
        self.parts = library._parse(text)
        self.at, *spots = self.rng.sample(cells, 3)
        self.things = dict(zip(spots, (thing for _, thing in self.parts)))
        self.ahead, self.carried, self.moves, self.left = (0, 1), "", 0, list(self.parts)

    def view(self):
        (x, y), (fx, fy) = self.at, self.ahead
        lines = [f"You carry a {self.carried}"] * bool(self.carried)
        for side, (dx, dy) in {"forward": (fx, fy), "left": (-fy, fx), "right": (fy, -fx)}.items():
            n = next(n for n in range(1, 99) if not (0 <= x + n * dx < SIZE and 0 <= y + n * dy < SIZE))
            if not any((x + k * dx, y + k * dy) in self.things for k in range(1, n)):
                lines.append(f"a wall {n} steps {side}")
        for (i, j), name in self.things.items():
            right, front = (i - x) * fy - (j - y) * fx, (i - x) * fx + (j - y) * fy
            if abs(right) <= 3 and 0 <= front <= 6:
                away = [f"{abs(right)} steps {'left' if right < 0 else 'right'}"] * bool(right)
                lines.append(f"a {name} " + " and ".join(away + [f"{front} steps forward"] * bool(front)))
        return "\n".join(lines)

    def act(self, name):
        def action():
            if not self.left or self.moves >= 128:
                raise RuntimeError("over")
            self.moves += 1
            (x, y), (fx, fy) = self.at, self.ahead
            front = x + fx, y + fy
            inside = 0 <= front[0] < SIZE and 0 <= front[1] < SIZE
            if name == "go_forward" and front not in self.things and inside:
                self.at = front
            elif name == "pick_up" and not self.carried and front in self.things:
                self.carried = self.things.pop(front)
            elif name.startswith("turn"):
                self.ahead = (-fy, fx) if name == "turn_left" else (fy, -fx)
            (x, y), (fx, fy) = self.at, self.ahead
            verb, thing = self.left[0]
            if self.carried == thing if verb == "pick up" else self.things.get((x + fx, y + fy)) == thing:
                self.left.pop(0)
            return self.view()
        return action

SIZE, solved, most = max(width), 0, 0
for number, play in enumerate(plays):
    room = Room(number, mission(play))
    for name in ("turn_left", "turn_right", "go_forward", "pick_up"):
        setattr(library, name, room.act(name))
    try:
        said = library.solve_mission(mission(play))
    except RuntimeError:
        said = "over"
    solved += not room.left
    most = max(most, room.moves)
    if room.left and number < 40:
        print(number, mission(play), said, room.moves)
print(solved, "of", len(plays), "with at most", most, "moves")"""


def session() -> Session:
    """Words first, then what ends an episode and what moves do to the view; a solver; a trial of it."""
    said = yield use("execute_code", code=WORDS)
    assert "go to the X after you pick up the X" in said
    said = yield use("execute_code", code=ORDER)
    tally = Counter(dict(map(ast.literal_eval, said.splitlines())))
    said = yield use("execute_code", code=LAWS)
    limits = re.search(r"farthest to a side and ahead: \[(.*)\]", said)
    assert limits
    assert "otherwise" not in said
    ends, goes_on = (tally["after you", "pick up, go to", came] for came in ("ended", "went on"))
    turned = ' parts[::-1] if " after you " in mission else' * (ends > 0 and goes_on == 0)
    order = f"return{turned} parts"
    source = SOLVER.replace("ORDER_RULE", order).replace("VIEW_LIMITS", limits[1])
    said = yield use("write_skill", source=source, public=True)
    if "assign each constant" in said:
        side, ahead = limits[1].split(", ")
        constants = f"SIDE = {side}\nAHEAD = {ahead}"
        source = source.replace(f"SIDE, AHEAD = {limits[1]}", constants)
        said = yield use("write_skill", source=source, public=True)
    assert "public" in said
    said = yield use("execute_code", code=TRIAL)
    assert "130 of 130" in said
    yield use(
        "finish",
        summary="solve_mission does all missions seen so far in one call. Both orders of the parts were held"
        " against what ended episodes. Tried in a room made of what is recorded, not in the world.",
    )


def user(told: list[str], tools: Tools) -> ToolCall:
    """Calls the solver."""
    return use("solve_mission", mission=told[0].partition("\n")[0].removeprefix("Your task: "))


STUDY = Study(env=("env=babyai",), rollouts=130, weak=weak, session=session, user=user)
