"""As `models.training.task`, for trainings in graph mode (tf.compat.v1)."""

from tfdist.launch.cluster import Cluster, Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.task import run, run_training


def main() -> int:
    """Run the task that the environment describes; returns as `run`. A template calls it, too."""
    return run(lambda: run_training(_train))


def _train(spec: TrainingSpec, cluster: Cluster, task: Task, phases: dict[str, float]) -> None:
    from tfdist.models.graph import chief
    from tfdist.models.graph.between import work
    from tfdist.models.training.leading import train

    if task.role == "worker":
        work(spec, cluster, task)
    train(lambda: chief.connect(spec, cluster, task), chief.prepare, phases)
