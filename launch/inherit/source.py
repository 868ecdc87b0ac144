"""The values of --inherit."""

from tfdist.launch.str_enum import StrEnum


class SourceName(StrEnum):
    """What describes the cluster and this task in the environment."""

    AUTO = "auto"
    """The first of the others whose variables are set; none: this is the only task."""
    TF_CONFIG = "tf-config"
    SLURM = "slurm"
    SKYPILOT = "skypilot"
    SAGEMAKER = "sagemaker"
    VERTEX = "vertex"
