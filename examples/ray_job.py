"""A training on Ray: `tfdist launch --inherit auto` as one task on each of N nodes.

    ray job submit --working-dir examples -- python ray_job.py 2 --preset smoke
"""

import json
import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PORT = 2222  # free on each node


@ray.remote(max_retries=0)
def launch(workers, index, arguments):
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    command = [sys.executable, "-m", "tfdist", "launch", "--inherit", "auto", *arguments]
    return subprocess.call(command, env={**os.environ, "TF_CONFIG": json.dumps(config)})


number, arguments = int(sys.argv[1]), sys.argv[2:]
ray.init()
group = placement_group([{"CPU": 1}] * number, strategy="STRICT_SPREAD")
if not group.wait(60):
    sys.exit(f"no {number} nodes with a free CPU within 60 s")
addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
nodes = placement_group_table(group)["bundles_to_node_id"]
workers = [f"{addresses[nodes[index]]}:{PORT}" for index in range(number)]
tasks = {
    launch.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote(workers, index, arguments): index
    for index in range(number)
}
while tasks:
    (done,), _ = ray.wait(list(tasks))
    index = tasks.pop(done)
    if code := ray.get(done):
        sys.exit(f"worker {index} on {workers[index]}: exit code {code}")
