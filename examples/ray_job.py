"""A training on Ray: a task on each of N nodes, which runs `tfdist launch --inherit auto` with the options after N.

    ray job submit --working-dir examples -- python ray_job.py 2 --preset smoke --runs-dir /shared/runs

Name folders outside of the working folder: Ray deletes it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

CPUS, GPUS, PORT = 1, 0, 2222  # of each node


@ray.remote(max_retries=0, num_cpus=CPUS, num_gpus=GPUS)
def launch(workers, index, arguments):
    """Run one task of the cluster; returns why it failed, or nothing."""
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    command = [sys.executable, "-m", "tfdist", "launch", "--inherit", "auto", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        reason = Path(folder, "reason")
        variables = {"TF_CONFIG": json.dumps(config), "TFDIST_TERMINATION_LOG": str(reason)}
        code = subprocess.call(command, env={**os.environ, **variables})
        if not code:
            return ""
        return reason.read_text() if reason.exists() else f"exit code {code}"  # wrong options, or it was killed


number, arguments = int(sys.argv[1]), sys.argv[2:]
ray.init()
group = placement_group([{"CPU": CPUS, "GPU": GPUS}] * number, strategy="STRICT_SPREAD")
if not group.wait(60):
    sys.exit(f"fewer than {number} nodes have {CPUS} CPUs and {GPUS} GPUs free")
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
nodes = placement_group_table(group)["bundles_to_node_id"]
workers = [f"{addresses[nodes[index]]}:{PORT}" for index in range(number)]
tasks = {}
for index in range(number):
    place = PlacementGroupSchedulingStrategy(group, index)
    tasks[launch.options(scheduling_strategy=place).remote(workers, index, arguments)] = index
while tasks:
    (done,), _ = ray.wait(list(tasks))
    index = tasks.pop(done)
    try:
        reason = ray.get(done)
    except ray.exceptions.RayError as error:  # the node has died, or the process of Ray in which the task ran
        reason = error
    if reason:
        sys.exit(f"worker {index} on {workers[index]}: {reason}")
