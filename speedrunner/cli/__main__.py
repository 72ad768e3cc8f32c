"""The console command: `speedrunner`, or `python -m speedrunner.cli`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command; Ctrl-C ends it silently, even while its modules are imported."""
    try:
        from speedrunner.cli.app import main as carry_out_command

        carry_out_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    # `python -m` puts the current directory first, so files in it would replace libraries.
    if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[2]:
        sys.path.pop(0)
    main()
