"""The console command: `speedrunner`, or `python -m speedrunner.cli`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command; Ctrl-C ends it silently, even while its modules are imported.

    One line ends it if memory runs out.
    """
    try:
        from speedrunner.cli.app import main as carry_out_command

        carry_out_command()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        sys.exit("error: there is no memory left: free some, or raise the limit of address space (ulimit -v)")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, is for lack of memory, also for a library's code."""
    is_own = isinstance(error, MemoryError) or "failed to map segment" in str(error)
    return is_own or (error is not None and is_out_of_memory(error.__cause__ or error.__context__))


if __name__ == "__main__":
    # `python -m` puts the current directory first, so files in it would replace libraries.
    if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[2]:
        sys.path.pop(0)
    main()
