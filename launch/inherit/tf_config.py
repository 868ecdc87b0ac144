"""TF_CONFIG: TFJob, Volcano, Ray, Vertex AI, Azure ML, and the manifests of tfdist."""

from collections.abc import Mapping

from tfdist.launch.cluster import Cluster, Task, parse_tf_config


def read(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The cluster and the task in TF_CONFIG, which has the ports.

    Raises:
        TfdistError: TensorFlow would reject it.
    """
    return parse_tf_config(environ["TF_CONFIG"])
