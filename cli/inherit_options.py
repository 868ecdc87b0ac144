"""The options that run one task of a cluster that another launcher has started."""

from dataclasses import dataclass
from typing import Annotated

from tfdist.cli.options import ENVIRONMENT, option
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.source import SourceName

InheritFrom = Annotated[
    SourceName | None,
    option(
        "--inherit",
        "Run only this task of a cluster that another launcher has started; what describes it in the environment: auto, "
        "tf-config, slurm, skypilot, sagemaker or vertex.",
        ENVIRONMENT,
    ),
]
InheritTfConfig = Annotated[bool, option("--inherit-tf-config", "The same as --inherit tf-config.", ENVIRONMENT)]
NoWaitForPeers = Annotated[
    bool,
    option(
        "--no-wait-for-peers",
        "With --inherit: start without the other tasks. Default: wait for them, --start-timeout seconds at most.",
        ENVIRONMENT,
    ),
]


@dataclass(frozen=True)
class Inherit:
    """The values that were given."""

    source: SourceName = SourceName.TF_CONFIG
    flag: str = "--inherit tf-config"
    """The option as the user wrote it."""
    waits: bool = True
    """The task starts when all others are there."""


def inherit_options(source: SourceName | None, tf_config: bool, alone: bool) -> Inherit | None:
    """What the options mean; None: the job is not inherited.

    Raises:
        TfdistError: they contradict each other.
    """
    if tf_config and source not in (None, SourceName.TF_CONFIG):
        raise TfdistError(f"--inherit {source} and --inherit-tf-config: use only one of them")
    if source is None and not tf_config:
        if alone:
            raise TfdistError("--no-wait-for-peers: has no effect without --inherit; omit it")
        return None
    flag = "--inherit-tf-config" if tf_config else f"--inherit {source}"
    return Inherit(source or SourceName.TF_CONFIG, flag, waits=not alone)
