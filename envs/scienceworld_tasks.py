"""ScienceWorld's tasks: their families, their variations, and the paper's split (Appendix B).

Follows scienceworld 1.2.3 (allenai/ScienceWorld): families are the topics of `tasks.json`; numbers of
variations and their shares for training and test are `scienceworld.runtime.pythonapi.PythonInterface`'s in
`scienceworld.jar`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from envs.text_env import TEST_SIZE, TRAIN_SIZE, Split, Task
from speedrunner.plain.plain_records import read_table

FAMILIES = {
    int(family): {row["task"]: int(row["variations"]) for row in rows}
    for family, rows in groupby(read_table(Path(__file__).with_suffix(".csv")), key=itemgetter("family"))
}
"""Family -> task name -> number of variations. The paper learns 3 (electricity) and 4 (classification)."""

VARIATIONS = {name: number for family in FAMILIES.values() for name, number in family.items()}
"""Task name -> number of variations."""

SPLIT_SEED = 42


def variations_for_training(name: str) -> range:
    """Return the simulator's own training variations of a task: the first two quarters."""
    return range(2 * (VARIATIONS[name] // 4))


def variations_for_test(name: str) -> range:
    """Return the simulator's own test variations of a task, those after its third quarter.

    The quarters are rounded down. The simulator takes at most one more quarter's length of the remainder.
    """
    quarter = VARIATIONS[name] // 4
    return range(3 * quarter, min(5 * quarter, VARIATIONS[name]))


def draw(env: str, family: int) -> Split:
    """Draw the training and test worlds of an environment's family.

    Returns:
        200 training and 30 test tasks, or all worlds of a smaller family. One generator draws first the
            training tasks, then the test tasks, from the sorted names and variations of the family's tasks.
    """
    generator = random.Random(SPLIT_SEED)

    def drawn(variations: Callable[[str], range], size: int) -> list[Task]:
        pool = sorted((name, number) for name in FAMILIES[family] for number in variations(name))
        return [Task(env, *world) for world in generator.sample(pool, min(size, len(pool)))]

    train = drawn(variations_for_training, TRAIN_SIZE)
    return Split(train, drawn(variations_for_test, TEST_SIZE))
