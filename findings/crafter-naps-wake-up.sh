#!/usr/bin/env bash
# Crafter 1.8.3: a nap of 12 steps in daylight earns the achievement `wake_up`, and no action ends it earlier.
# Guess: the player has to sleep through a night, and moving wakes it up.
# Seen: for each of 8 seeds the energy falls to 8 after 31 idle steps. Sleeping then lasts 12 steps: until the energy is 9
# again, or a monster bites, each other action is carried out as `sleep`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet crafter==1.8.3 opensimplex==0.4.5.1 numba==0.68.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'EOF'
import crafter


def nap(seed):
    """Return idle steps until the player is tired, steps of its nap, its `wake_up` and the daylight."""
    env = crafter.Env(seed=seed)
    env.reset()
    player, tired, steps = env._player, 0, 1
    while player.inventory["energy"] == 9:
        env.step(env.action_names.index("noop"))
        tired += 1
    env.step(env.action_names.index("sleep"))
    while player.sleeping:
        env.step(env.action_names.index("move_left"))
        steps += 1
    return tired, steps, player.achievements["wake_up"], bool(env._world.daylight > 0.9)


seen = {nap(seed) for seed in range(8)}
print("idle steps, steps asleep, wake_up, by day:", seen)
assert seen == {(31, 12, 1, True)}
EOF
