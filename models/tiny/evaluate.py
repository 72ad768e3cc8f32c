"""Plays the bundled model as it is served, without skills, and writes what came of it into its card.

    python -m models.tiny.evaluate

The worlds are those of both splits of `env=babyai`, and none of them is in the corpus. The first batch covers
the whole training split and the first evaluation covers the test split, so both are played without skills.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import date
from pathlib import Path
from statistics import fmean

import msgspec

from models.tiny import card
from models.tiny.training_corpus import Damaged
from speedrunner.results import load

COMMAND = (
    *("run", "env=babyai", "method=speedrunner", "model=tiny", "run.rollouts=200", "run.sleep_every=200"),
    *("run.eval_every=200", "run.test_episodes=30", "run.in_flight=32"),
)


def measure(folder: Path) -> card.Measured:
    """Run or resume `COMMAND` in a run folder and return its results. Raises `CalledProcessError`."""
    subprocess.run([sys.executable, "-m", "speedrunner", *COMMAND, f"run.dir={folder}"], check=True)
    rows = [row for row in load(folder).episodes if row.score is not None and row.policy == 0]
    return card.Measured(
        date=date.today().isoformat(),
        command=" ".join(["speedrunner", *COMMAND]),
        episodes=len(rows),
        success=round(fmean(row.score for row in rows if row.score is not None), 4),
        llm_calls=round(fmean(row.llm_calls for row in rows), 2),
        output_tokens=round(fmean(row.usage.completion for row in rows), 1),
    )


def main() -> None:
    """Run the command line."""
    argparse.ArgumentParser(
        prog="python -m models.tiny.evaluate", description=(__doc__ or "").partition("\n")[0]
    ).parse_args()
    try:
        facts = card.read()
        weights = card.digest(card.WEIGHTS / "model.safetensors")
        found = measure(Path(".cache/tiny-measured", weights[:12]))
    except (Damaged, OSError) as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError:
        sys.exit("error: the run did not end well, see above")
    facts = msgspec.structs.replace(facts, measured=found)
    card.write(card.WEIGHTS, facts)
    low, high = facts.success_range
    each = f"{found.llm_calls} calls and {found.output_tokens} output tokens each"
    print(f"{found.success:.1%} of {found.episodes} episodes, {each}")
    if not low <= found.success <= high:
        sys.exit(f"error: the card allows {low:.0%} to {high:.0%}: train again, or change its range")


if __name__ == "__main__":
    main()
