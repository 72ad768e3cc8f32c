"""A site's resources and how its jobs request them: the files of `configs/cluster/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from speedrunner.config.compose import group_file
from speedrunner.config.names import read_mapping
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.plain_records import WrongData, record
from speedrunner.plain.plain_yaml import NotPlain, read_value

# sbatch gives blanks, quotes, backslashes and # in an option a special meaning.
Word = Annotated[
    str,
    msgspec.Meta(pattern=r"""^[^\s"'\\#]+\Z""", description="one word without quotes, backslashes or #"),
]


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How jobs are requested at a site.

    Attributes:
        gpus: GPUs that one node has for a job; 0 for machines without. The models' model configs say how many
            of them it gets.
        cpus: cores of a job.
        memory_gb: memory of a job in GB (2^30 bytes); `None`: not requested, for sites that refuse `--mem`.
        minutes: walltime, 30 days at most. A job ends cleanly before its walltime is over, and restarts.
        partition: `None` for the site's own default.
        account: the account that is charged; `None` for the user's own.
        setup: shell lines that run first, such as `module load cuda`.
        container: prefix that runs a command inside a container with `speedrunner` installed, such as
            `apptainer exec --nv image.sif`; `None` for the installation that submits.
        scratch: a folder on the node's own disk, for caches and sockets; may name variables of the job.
            `None`: $SLURM_TMPDIR, $TMPDIR or /tmp.
        options: further options of sbatch, such as `--qos=long`. One that requests memory, GPUs or time
            replaces this program's.
    """

    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)]
    minutes: Annotated[int, msgspec.Meta(ge=1, le=43_200)]
    cpus: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    memory_gb: Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None
    partition: Word | None = None
    account: Word | None = None
    setup: str = ""
    container: str | None = None
    scratch: Word | None = None
    options: list[Word] = []


class Site(NamedTuple):
    """A cluster among settings: its values, the file that they are from, and the other settings."""

    cluster: Cluster
    file: Path
    others: list[str]


def cluster_of(given: Sequence[str]) -> Site:
    """Return the site that settings name with `cluster=NAME` (or a file's path) and `cluster.KEY=VALUE`.

    Raises `InvalidConfig`: none or several are named, or a key or value is wrong.
    """
    named = [text.partition("=")[2] for text in given if text.startswith("cluster=")]
    changes = [text.removeprefix("cluster.").partition("=") for text in given if text.startswith("cluster.")]
    rest = [text for text in given if not text.startswith(("cluster=", "cluster."))]
    if len(named) != 1:
        raise InvalidConfig(
            "name one cluster: cluster=NAME (a file of configs/cluster/, or a path), not"
            f" {' and '.join(named) or 'none'}"
        )
    file = Path(named[0]) if named[0].endswith((".yaml", ".yml")) else group_file("cluster", named[0])
    content = read_mapping(file)
    for key, _, text in changes:
        try:
            content |= {key: read_value(text)}
        except NotPlain as error:
            raise InvalidConfig(f"cluster.{key}={text} cannot be read: {error}") from None
    try:
        return Site(record(Cluster, content), file, rest)
    except WrongData as error:
        raise InvalidConfig(f"cluster {named[0]}: {error}") from None
