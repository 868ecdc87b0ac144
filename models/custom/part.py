"""This task's part in the job of a custom program, from its environment. No TensorFlow."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tfdist.launch.cluster import parse_tf_config
from tfdist.launch.errors import TfdistError


@dataclass(frozen=True)
class JobPart:
    """Which of a job's steps this task counts."""

    task: str = "worker-0"
    rank: int = 0
    ranks: int = 1
    """Tasks that step together; 1 for a single or independent task, and in a job with parameter servers."""
    workers: int = 0
    """Whose steps this task schedules; 0: it trains itself."""

    @property
    def concurrent(self) -> int:
        """Steps that run at the same time."""
        return max(1, self.workers)

    def share(self, examples: int) -> int:
        """This task's examples of a step. Those of all ranks sum to `examples`."""
        return examples * (self.rank + 1) // self.ranks - examples * self.rank // self.ranks

    def check(self, examples: int) -> None:
        """Raise TfdistError unless every rank can have a share of a step's examples."""
        if examples < self.ranks:
            least = f"at least {self.ranks}, one for each worker" if self.ranks > 1 else "positive"
            raise TfdistError(
                f"tfdist.measure: examples={examples}: must be {least}; give the number of examples in one step of all "
                "replicas together"
            )


def job_part(environ: Mapping[str, str] = os.environ) -> JobPart:
    """The part that TF_CONFIG describes; without it the task is alone or independent.

    Raises:
        TfdistError: TF_CONFIG is malformed.
    """
    text = environ.get("TF_CONFIG")
    if not text:
        return JobPart(environ.get("TFDIST_TASK", "worker-0"))
    cluster, task = parse_tf_config(text)
    counts = {role: len(hosts) for role, hosts in cluster.addresses.items()}
    if counts.get("ps"):  # without a chief each worker takes steps of its own
        return JobPart(task.name, workers=counts.get("worker", 1) if "chief" in counts else 0)
    chiefs = counts.get("chief", 0)
    rank = task.index + (chiefs if task.role == "worker" else 0)
    return JobPart(task.name, rank, max(1, chiefs + counts.get("worker", 0)))
