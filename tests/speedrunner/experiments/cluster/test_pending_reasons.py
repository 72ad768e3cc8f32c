"""Why a job waits, in plain words."""

from __future__ import annotations

from speedrunner.experiments.cluster.pending_reasons import explain_reason
from tests.golden_tables import Golden, table


def test_a_known_reason_is_explained(golden: Golden) -> None:
    reasons = (
        *("PartitionConfig", "Priority", "ReqNodeNotAvail, UnavailableNodes:gpu07", "QOSMaxGRESPerUser"),
        *("AssocGrpGRES", "SomethingNew"),
    )
    golden("cluster/pending_reasons.txt", table([(reason, explain_reason(reason)) for reason in reasons]))
