"""`python -m tfdist.models.graph.task`: as `models.training.task`, for trainings in graph mode (tf.compat.v1)."""

from tfdist.launch.cluster import Cluster, Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.task import cluster_and_task, leave, run, spec_of_environment, start


def main() -> int:
    """Run the task that the environment describes; returns the exit code, as `tfdist.models.training.task.main`."""
    return run(lambda: _train(spec_of_environment(), *cluster_and_task()))


def _train(spec: TrainingSpec, cluster: Cluster, task: Task) -> None:
    phases = {"import": start(spec, cluster, task)}

    from tfdist.models.graph import chief
    from tfdist.models.graph.between import work
    from tfdist.models.training.leading import train

    if task.role == "worker":
        work(spec, cluster, task)
    train(lambda: chief.connect(spec, cluster, task), chief.prepare, phases)


if __name__ == "__main__":
    leave(main())
