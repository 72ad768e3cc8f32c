"""The console command: `speedrunner`, or `python -m speedrunner`."""

from __future__ import annotations

import sys


def main() -> None:
    """Carry out the command; Ctrl-C ends it without a word, even while its modules are being read."""
    try:
        from speedrunner.cli.main import main as carry_out_command

        carry_out_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
