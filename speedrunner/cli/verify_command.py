"""`speedrunner verify`: check that a run's records are true."""

from __future__ import annotations

from speedrunner.cli.command import AsJson, RunPath, Trust, carry_out
from speedrunner.cli.output import end_report, say, waiting_line
from speedrunner.runs.verification.verify import verify as verify_run


def verify(
    run: RunPath,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Check a run's records by repeating every call, without a model.

    Checked are calls, prompts, token reconciliation, policies and the plan.
    Exit status 1: something differs.

    Example: speedrunner verify runs/demo
    """
    with waiting_line() as status:
        report = carry_out(
            lambda shutdown: verify_run(
                run, status, lambda finding: None if as_json else say(*finding.lines()), trust or []
            )
        )
    end_report(report, as_json=as_json)
