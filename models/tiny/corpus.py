"""The text that the tiny tokenizer is trained on: a synthetic sample of what the model will read and write.

Games (missions, observations, tool calls) are composed by a seeded generator; prompts, documentation and
skill code stand here as they are. Only the statistics of the text matter, not its truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
TYPES = ("ball", "box", "key", "door")
MOVES = ("turn_left", "turn_right", "move_forward", "pick_up", "drop", "toggle")
VERBS = (
    "go",
    "get",
    "find",
    "fetch",
    "face",
    "walk",
    "explore",
    "open",
    "put",
    "place",
    "search",
    "solve",
    "carry",
)
THINGS = (
    "object",
    "ball",
    "box",
    "key",
    "door",
    "room",
    "wall",
    "target",
    "mission",
    "corner",
    "item",
    "agent",
)
RESOURCES = (
    "wood",
    "stone",
    "coal",
    "iron",
    "diamond",
    "water",
    "sapling",
    "table",
    "furnace",
    "plant",
    "grass",
)
CREATURES = ("zombie", "skeleton", "cow", "arrow", "player")
MATERIALS = (
    "lead",
    "tin",
    "mercury",
    "chocolate",
    "ice",
    "soap",
    "orange juice",
    "rubber",
    "caesium",
    "gallium",
)
PLACES = (
    "kitchen",
    "workshop",
    "greenhouse",
    "foundry",
    "bathroom",
    "bedroom",
    "hallway",
    "outside",
    "art studio",
)
VESSELS = (
    "metal pot",
    "glass cup",
    "wood cup",
    "flower pot",
    "inventory",
    "cupboard",
    "fridge",
    "oven",
    "sink",
)
DIRECTIONS = ("north", "south", "east", "west", "left", "right", "forward", "facing", "near", "ahead")

PROSE = """\
You are an agent that plays a text game. Each episode gives you one instruction. Read the observation
after every action and choose the next one. Reply with exactly one tool call and nothing else.
The episode ends as soon as the mission is complete, or when no calls are left. Use as few calls as you
can: every request costs tokens, and a skill does in one call what would otherwise take many.
Besides the primitive actions you may call the skills of your library. A skill is a Python function that
was written after earlier episodes. Its documentation states what it does, which arguments it expects, and
what it returns.
You can see objects inside a field of view in front of you, seven cells wide and seven cells deep.
Distances are counted in steps. An object one step forward stands directly before you; you can pick it up,
but not walk through it.
Rooms are closed by walls. A locked door needs the key of the same color. Toggle opens and closes a door
or a box. You carry at most one object at a time; drop it before you pick up another.
You improve the skill library of an agent. Study the stored trajectories of the last batch: which
sequences of actions repeat, where does the agent waste requests, which mistakes cost the episode? Then
write, edit or delete skills.
Keep skills short, general and tested. Prefer arguments over copies of nearly the same function. Handle
the cases in which the world does not answer as expected: return a clear message instead of looping
without end.
A trajectory lists the turns of an episode: the text that the model wrote, the call that was parsed, the
result of each primitive, and any error that was raised. Success rates, numbers of calls and token usage
are given for each skill.
If a skill fails, read its error and its call tree before you change it. Do not remove a public skill that
other skills depend on. Helper functions may stay private; the agent cannot see them.
When you are finished, call finish with a brief summary of the changes and the reasons for them.
In this world you survive: collect wood from trees, place a table, make a pickaxe and a sword, drink
water, eat, sleep when energy is low, and defend yourself against zombies and skeletons. Health falls with
hunger, thirst and fatigue.
Achievements: collect coal, collect diamond, collect drink, collect iron, collect sapling, collect stone,
collect wood, defeat skeleton, defeat zombie, eat cow, eat plant, make iron pickaxe, make iron sword, make
stone pickaxe, make stone sword, make wood pickaxe, make wood sword, place furnace, place plant, place
stone, place table, wake up.
In the science laboratory you melt, boil, freeze and mix substances, measure temperature with a
thermometer, connect batteries, wires and light bulbs to build an electrical circuit, grow plants from
seeds, and classify living things.
Your task is to determine whether the unknown material is conductive. First focus on the material. If it
conducts electricity, put it in the blue box, otherwise in the green one.
Error: no tool has this name. The available tools are listed above. Error: missing argument. Error:
unexpected argument. Error: the value must be an integer, a number, a string, a list or a boolean. Error:
the time limit was reached.
The call was rejected because the function has a syntax error. The skill was added to the library as
version two. The skill was deleted. There is nothing here to pick up. The path is blocked. You are already
carrying something.
"""

WORDS = """\
about above again against almost along already although among another anything around because become
before begin behind below beneath beside better between beyond both bring build cannot certain change
check choose clear close combine compare consider contain continue correct create current cut decide
describe destroy different difficult direct discover distance does done down during early either empty
enough enter equal even ever every exactly examine example except expect fail far fast few final first fix
follow found four free from full game general give given gone good great group half hand happen hard have
heat hence here hidden high hold hot however idea if immediately important impossible improve indeed
inside interest into itself just keep kind know large late later learn least less let level light like
likely limit list little live long look lost low made main many may maybe mean measure middle might mind
minus moment more most much must name necessary never new nothing notice now number obtain often old once
only open order other our over own part past pattern perform perhaps plan play point possible previous
probably problem produce progress proper quick quite raise rather reach ready really reason receive record
reduce remain remember repeat require reset rest result return reward rule run safe same save say score
second seem select send separate several shall should shown side similar simple since single situation six
slow small so solution some soon special start state still stop strategy such sure surface switch take
tell ten than that their them themselves there therefore these they think third those though thousand
three through thus time today together too toward track travel trial true try turn under understand until
unless up update upon useful using usual usually various very view wait want warm was watch way weather
well went were whatever when whenever whether while who whole why will wish within without wonder work
world worse would write wrong yes yet young zero assert async await break class def del elif else except
exec eval filter float format frozenset global hasattr getattr isinstance enumerate lambda len map
nonlocal pass property range repr reversed round slice staticmethod super tuple union yield zip append
extend insert remove pop index count sort reverse copy update items keys values split strip join replace
startswith endswith lower upper title encode decode optional literal iterable callable sequence default
null false properties enumeration minimum maximum pattern items attribute exception runtime timeout
interrupt memory process thread module package version configuration environment simulator variation
episode evaluation checkpoint baseline experiment benchmark average median quantile deviation
"""

CODE = '''\
def turn_around() -> str:
    """Turn to face the opposite direction and return the new observation."""
    turn_left()
    return turn_left()


def move_steps(steps: int) -> str:
    """Walk straight ahead.

    Args:
        steps: number of cells to move forward, at least 1.

    Returns:
        The last observation, or a message that says why the agent stopped.
    """
    observation = ""
    for _ in range(steps):
        previous = observation
        observation = move_forward()
        if observation == previous:
            return "blocked: " + observation
    return observation


def parse_objects(observation: str) -> list[dict[str, int | str]]:
    """Read every visible object and its offset from an observation."""
    objects = []
    for text in observation.splitlines():
        found = re.match(r"a (\\w+) (\\w+) ((\\d+) steps? (left|right))?( and )?(.* forward)?", text)
        if not found:
            continue
        color, kind, side, direction, ahead = found.groups()
        right = int(side or 0) if direction == "right" else -int(side or 0)
        objects.append({"color": color, "type": kind, "right": right, "forward": int(ahead or 0)})
    return objects


def find_object(color: str, kind: str, max_turns: int = 4) -> str:
    """Turn until an object of this color and type is in view; explore the room when it is not."""
    observation = turn_left()
    turns = 1
    while f"{color} {kind}" not in observation and turns < max_turns:
        observation = turn_right()
        turns += 1
    if f"{color} {kind}" not in observation:
        raise ValueError(f"no {color} {kind} was found after {turns} turns")
    return observation


def go_to_and_pick_up(color: str, kind: str) -> str:
    """Find an object, walk to it and pick it up. Returns the final observation."""
    observation = find_object(color, kind)
    target = next((item for item in parse_objects(observation) if item["color"] == color), None)
    try:
        if target is not None and target["right"] != 0:
            turn = turn_right if target["right"] > 0 else turn_left
            observation = turn()
    except (KeyError, TypeError) as error:
        return "failed: " + str(error)
    finally:
        steps_taken = 0
    with_key = True and not False
    return pick_up() if with_key else observation


class Explorer:
    """Remember the cells that were visited, the known walls and the frontier."""

    def __init__(self, width: int = 8, height: int = 8) -> None:
        self.visited: set[tuple[int, int]] = set()
        self.queue = [(0, 0)]
        self.size = {"width": width, "height": height}

    def neighbors(self, x: int, y: int) -> list[tuple[int, int]]:
        candidates = [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
        return sorted(cell for cell in candidates if cell not in self.visited and min(cell) >= 0)


import json
from collections import Counter, deque
from trajectories import list_episodes, load_episode

counts = Counter(call["name"] for episode in list_episodes() for call in episode["calls"])
for name, count in counts.most_common(10):
    print(f"{name:<20} {count:>5}")
print(json.dumps({"mean": sum(counts.values()) / max(1, len(counts)), "total": len(counts)}, indent=2))
'''


def documents() -> Iterator[str]:
    """Yield the corpus, document by document; the same sequence in every process."""
    rng = random.Random(0)
    for _ in range(6):
        yield PROSE
        yield WORDS
        yield CODE
    for _ in range(300):
        yield _mission(rng)
        yield _observation(rng)
        yield _call(rng)
        yield _schema(rng)
        yield _crafter(rng)
        yield _science(rng)


def _object(rng: random.Random) -> str:
    return f"{rng.choice(COLORS)} {rng.choice(TYPES)}"


def _mission(rng: random.Random) -> str:
    first, then = _object(rng), _object(rng)
    return rng.choice(
        (
            f"Your task is to pick up the {first}, then go to the {then}.",
            f"go to the {then} after you pick up the {first}",
            f"open the {first}",
            f"put the {first} next to the {then}",
            f"<think>\nThe {first} is in view. I go to it, then to the {then}.\n</think>\n\n",
        )
    )


def _offset(rng: random.Random) -> str:
    side, ahead = rng.randint(0, 3), rng.randint(0, 6)
    across = f"{side} step{'s' * (side != 1)} {rng.choice(('left', 'right'))}" if side else ""
    along = f"{ahead} step{'s' * (ahead != 1)} forward" if ahead else ""
    return " and ".join(part for part in (across, along) if part) or "1 step forward"


def _observation(rng: random.Random) -> str:
    lines = [f"a wall {rng.randint(1, 6)} steps {rng.choice(('forward', 'left', 'right'))}"]
    lines += [f"a {_object(rng)} {_offset(rng)}" for _ in range(rng.randint(1, 4))]
    lines += [f"You carry a {_object(rng)}"] * (rng.random() < 0.3)
    lines += [f"a {rng.choice(('open', 'closed', 'locked'))} {rng.choice(COLORS)} door {_offset(rng)}"]
    return "<tool_response>\n" + "\n".join(lines) + "\n</tool_response>"


def _skill(rng: random.Random) -> str:
    return f"{rng.choice(VERBS)}_{rng.choice(('to', 'and', 'the', 'all', 'next'))}_{rng.choice(THINGS)}"


def _call(rng: random.Random) -> str:
    if rng.random() < 0.6:
        name, arguments = rng.choice(MOVES), dict[str, object]()
    elif rng.random() < 0.7:
        name = _skill(rng)
        arguments = {"color": rng.choice(COLORS), "kind": rng.choice(TYPES), "steps": rng.randint(1, 9)}
    else:
        name = rng.choice(
            ("write_skill", "delete_skill", "show_skill", "list_trajectories", "read_trajectory")
        )
        arguments = {
            "name": _skill(rng),
            "code": rng.choice(CODE.split("\n\n\n")),
            "public": rng.random() < 0.5,
        }
    return json.dumps({"name": name, "arguments": arguments})


def _schema(rng: random.Random) -> str:
    properties = {
        rng.choice(THINGS): {"type": rng.choice(("string", "integer", "number", "boolean", "array"))}
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    closed = {**parameters, "additionalProperties": False}
    function = {"name": _skill(rng), "description": rng.choice(PROSE.split(". ")), "parameters": closed}
    return json.dumps({"type": "function", "function": function})


def _crafter(rng: random.Random) -> str:
    seen = rng.sample(RESOURCES + CREATURES, 3)
    lines = [f"- {thing} {rng.randint(1, 9)} steps to your {rng.choice(DIRECTIONS)}" for thing in seen]
    status = (
        f"- health: {rng.randint(1, 9)}/9\n- food: {rng.randint(1, 9)}/9\n- energy: {rng.randint(1, 9)}/9"
    )
    return (
        "You see:\n"
        + "\n".join(lines)
        + f"\nYour status:\n{status}\nYour inventory:\n- {rng.choice(RESOURCES)}: 1"
    )


def _science(rng: random.Random) -> str:
    place, vessel, material = rng.choice(PLACES), rng.choice(VESSELS), rng.choice(MATERIALS)
    return (
        f"You move to the {place}. This room is called the {place}. In it, you see: a {vessel} "
        f"(containing {material}), a substance called {material}. A door to the {rng.choice(PLACES)} "
        f"(that is open). The {vessel} is now activated. The temperature of the {material} is "
        f"{rng.randint(1, 200)} degrees celsius."
    )
