"""One form for clusters that launchers describe differently. Pure, and alike in every task."""

from tfdist.launch.cluster import Cluster, Task


def normalize(cluster: Cluster, task: Task) -> tuple[Cluster, Task]:
    """The cluster without a chief that no parameter server needs: it becomes worker 0, and the workers move up by one.

    Such a chief is a worker that also saves (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG), and
    Vertex AI and TFJob have one in every cluster. A cluster with parameter servers is returned as it is. An evaluator
    stays, also one that is not in the cluster.
    """
    chiefs = cluster.addresses.get("chief", ())
    if not chiefs or cluster.addresses.get("ps"):
        return cluster, task
    others = {role: hosts for role, hosts in cluster.addresses.items() if role not in ("chief", "worker")}
    workers = Cluster({"worker": (*chiefs, *cluster.addresses.get("worker", ())), **others})
    match task:
        case Task("chief", index):
            return workers, Task("worker", index)
        case Task("worker", index):
            return workers, Task("worker", index + len(chiefs))
    return workers, task
