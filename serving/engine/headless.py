"""vLLM's part of a model on a node that has no API server: `vllm serve --headless`, by its module.

    python -m serving.engine.headless OPTIONS OF THE API SERVER

The API server's own module would start a second one. Deaf to Slurm's signals as that is
(`serving.engine.api_server`).
"""

from __future__ import annotations

from serving.engine.api_server import be_deaf

if __name__ == "__main__":
    be_deaf()
    from vllm.entrypoints.cli.serve import run_headless
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    given = make_arg_parser(FlexibleArgumentParser()).parse_args()
    validate_parsed_serve_args(given)
    given.api_server_count = 0
    run_headless(given)
