"""The console command: `speedrunner`, or `python -m speedrunner.cli`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Run the command; Ctrl-C ends it silently, even while its modules are imported.

    A module that cannot be imported while PYTHONPATH is set ends it with one line.
    """
    folders = os.environ.get("PYTHONPATH")
    try:
        from speedrunner.cli.app import main as carry_out_command

        carry_out_command()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, AttributeError) as error:
        is_import = any(frame.name == "<module>" for frame in traceback.extract_tb(error.__traceback__))
        if not (folders and is_import):
            raise
        sys.exit(f"error: {error}; PYTHONPATH={folders} may replace installed packages: unset it")


if __name__ == "__main__":
    # `python -m` puts the current directory first, so files in it would replace libraries.
    if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[2]:
        sys.path.pop(0)
    main()
