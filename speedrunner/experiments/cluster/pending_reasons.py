"""Explain in plain words why a job waits in Slurm's queue, and what to do about it."""

from __future__ import annotations

_AGAIN = "cancel it and submit again with"
_SMALLER = f"{_AGAIN} smaller cluster.cpus, cluster.memory_gb or cluster.minutes"

REASONS = {
    "Priority": "other jobs come first",
    "Resources": "it starts when enough of the nodes are free",
    "BeginTime": "its start time is not reached; Slurm delays a requeued job by about two minutes",
    "PartitionConfig": f"it asks for more than its partition allows, and never starts: {_SMALLER}",
    "PartitionNodeLimit": f"its partition allows fewer nodes: {_AGAIN} another partition",
    "PartitionTimeLimit": f"its partition allows less time: {_AGAIN} smaller cluster.minutes",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition starts no jobs now",
    "ReqNodeNotAvail": "the nodes that it needs are down or reserved, often for maintenance",
    "BadConstraints": f"no node has what it asks for: {_AGAIN} other cluster.options",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not started",
    "JobHeldUser": "you hold it: `scontrol release JOB` frees it",
    "JobHeldAdmin": "an administrator holds it: ask your site",
    "JobArrayTaskLimit": "the array's limit of running jobs is reached",
    "Dependency": "a job that it depends on has not ended",
    "InvalidAccount": f"its account is not valid here: {_AGAIN} another cluster.account",
    "InvalidQOS": f"its quality of service is not valid here: {_AGAIN} other cluster.options",
    "AccountNotAllowed": f"its account may not use the partition: {_AGAIN} another cluster.account",
}
"""Explanations by Slurm's word for the reason."""

FAMILIES = {
    "QOS": "a limit of its quality of service (QOS) is reached; your site sets it",
    "Assoc": "a limit of your account is reached; your site sets it",
    "MaxJobs": "your limit of jobs at the same time is reached",
    "Nodes required": "the nodes that it needs are down, drained or reserved",
}
"""Explanations by the first letters of a group of reasons."""


def explain_reason(reason: str) -> str:
    """Return Slurm's reason with its explanation; an unknown reason alone."""
    word = reason.partition(",")[0].strip()
    family = next((text for start, text in FAMILIES.items() if word.startswith(start)), "")
    text = REASONS.get(word, family)
    return f"{reason}: {text}" if text else reason
