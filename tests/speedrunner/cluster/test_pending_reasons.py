"""Why a job waits, in plain words."""

from __future__ import annotations

import pytest

from speedrunner.cluster.pending_reasons import explain_reason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "PartitionConfig",
            "PartitionConfig: it asks for more than its partition allows, and never starts: cancel it and"
            " submit again with smaller cluster.cpus, cluster.memory_gb or cluster.minutes",
        ),
        ("Priority", "Priority: other jobs come first"),
        (
            "ReqNodeNotAvail, UnavailableNodes:gpu07",
            "ReqNodeNotAvail, UnavailableNodes:gpu07: the nodes that it needs are down or reserved, often for"
            " maintenance",
        ),
        (
            "QOSMaxGRESPerUser",
            "QOSMaxGRESPerUser: a limit of its quality of service (QOS) is reached; your site sets it",
        ),
        ("AssocGrpGRES", "AssocGrpGRES: a limit of your account is reached; your site sets it"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_a_known_reason_is_explained(reason: str, text: str) -> None:
    assert explain_reason(reason) == text
