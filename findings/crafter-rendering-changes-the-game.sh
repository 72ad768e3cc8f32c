#!/usr/bin/env bash
# Crafter 1.8.3: rendering at night draws from the game's own random stream, and how much depends on the image's size.
# Guess: render() only reads the game, so the size of images and the number of render() calls change nothing else.
# Seen: by day the state of the random generator stays as it is; at night render() changes it, and a larger image changes it
# to another state. So agents with other image sizes, or without images, play other games after dusk.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet crafter==1.8.3 numba==0.68.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'EOF'
import crafter


def position(daylight, size):
    env = crafter.Env(seed=0)
    env.reset()
    env._world.daylight = daylight
    before = env._world.random.get_state()
    env.render(size)
    after = env._world.random.get_state()
    return before[2], after[2], bool((before[1] == after[1]).all())


day, night, large = position(1.0, (64, 64)), position(0.1, (64, 64)), position(0.1, (128, 128))
print("place in the random stream before and after, and whether its block is the same:", day, night, large)
assert day[0] == day[1] and day[2]
assert not night[2] and night[1] != large[1]
EOF
