"""What each launcher says in the environment, and the cluster and the task that it means."""

import json

import pytest

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.table import SOURCES, SourceName, detect, inherited

TF_CONFIG = {
    "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}, "environment": "cloud"}'
}
SLURM = {
    "SLURM_STEP_NODELIST": "n[1-2,10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "2",
    "SLURMD_NODENAME": "n2",
}
SKYPILOT = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n", "SKYPILOT_NODE_RANK": "1"}
SAGEMAKER = {"SM_HOSTS": '["algo-1", "algo-10", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}
POOLS = {
    "workerpool0": ["w0:2222"],
    "workerpool1": ["w1:2222", "w2:2222"],
    "workerpool2": ["p:2222"],
    "workerpool3": ["e:2222"],
}


def vertex(pools, pool, index):
    return {"CLUSTER_SPEC": json.dumps({"cluster": pools, "task": {"type": pool, "index": index, "trial": "1"}})}


WORKERS = {"workerpool0": ["w0:2222"], "workerpool1": ["w1:2222"]}
FOUND = [
    ("tf-config", TF_CONFIG, {"worker": ("a:1", "b:2")}, Task("worker", 1)),
    ("slurm", SLURM, {"worker": ("n1:2222", "n1:2223", "n2:2222", "n2:2223", "n10:2222")}, Task("worker", 2)),
    ("slurm", {"SLURM_STEP_NODELIST": "n1", "SLURM_PROCID": "0"}, {"worker": ("n1:2222",)}, Task("worker", 0)),
    ("skypilot", SKYPILOT, {"worker": ("10.0.0.1:2222", "10.0.0.2:2222")}, Task("worker", 1)),
    ("sagemaker", SAGEMAKER, {"worker": ("algo-1:2222", "algo-10:2222", "algo-2:2222")}, Task("worker", 2)),
    ("vertex", vertex(WORKERS, "workerpool0", 0), {"worker": ("w0:2222", "w1:2222")}, Task("worker", 0)),
    ("vertex", vertex(WORKERS, "workerpool1", 0), {"worker": ("w0:2222", "w1:2222")}, Task("worker", 1)),
    (
        "vertex",
        vertex(POOLS, "workerpool1", 1),
        {"chief": ("w0:2222",), "worker": ("w1:2222", "w2:2222"), "ps": ("p:2222",), "evaluator": ("e:2222",)},
        Task("worker", 1),
    ),
]


@pytest.mark.parametrize(("name", "environ", "addresses", "task"), FOUND)
def test_the_environment_of_each_launcher(name, environ, addresses, task):
    found = inherited(SourceName(name), environ, None, f"--inherit {name}")
    assert (found.cluster, found.task) == (Cluster(addresses), task)
    assert found.origin == SOURCES[SourceName(name)].variables[0]
    assert inherited(SourceName.AUTO, environ, None, "--inherit auto") == found


def test_a_port_counts_up_on_each_host():
    found = inherited(SourceName.SLURM, SLURM, 12345, "--inherit slurm")
    assert found.cluster.addresses["worker"] == ("n1:12345", "n1:12346", "n2:12345", "n2:12346", "n10:12345")


def test_an_ipv6_address_is_put_in_brackets():
    found = inherited(SourceName.SKYPILOT, {**SKYPILOT, "SKYPILOT_NODE_IPS": "fd00::1\nfd00::2"}, None, "")
    assert found.cluster.addresses["worker"] == ("[fd00::1]:2222", "[fd00::2]:2222")


def test_a_launcher_that_runs_inside_another_is_found_first():
    assert detect({}) is None
    assert detect({"TF_CONFIG": "", "SLURM_PROCID": "0"}) is None
    assert detect({**SLURM, **SKYPILOT}) is SourceName.SKYPILOT
    assert detect({**SLURM, **SAGEMAKER, **vertex(WORKERS, "workerpool0", 0), **TF_CONFIG}) is SourceName.TF_CONFIG
    assert inherited(SourceName.AUTO, {"SLURM_PROCID": "0"}, None, "--inherit auto") is None


WRONG = [
    ("slurm", {}, "--inherit slurm: SLURM_STEP_NODELIST is not set"),
    ("slurm", {**SLURM, "SLURM_PROCID": "5"}, "SLURM_PROCID=5: not one of the 5 tasks"),
    ("slurm", {**SLURM, "SLURM_PROCID": "x"}, "SLURM_PROCID=x"),
    ("slurm", {**SLURM, "SLURMD_NODENAME": "n1"}, "SLURM_PROCID=2 runs on n1, not on n2; .* --distribution=block"),
    ("slurm", {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2,1"}, "SLURM_STEP_TASKS_PER_NODE=2,1"),
    ("slurm", {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x"}, "must be numbers as in"),
    ("slurm", {**SLURM, "SLURM_STEP_NODELIST": "n[3-1]"}, "SLURM_STEP_NODELIST .*descending"),
    ("skypilot", {**SKYPILOT, "SKYPILOT_NODE_RANK": "2"}, "SKYPILOT_NODE_RANK=2: not one of the 2 nodes"),
    ("skypilot", {**SKYPILOT, "SKYPILOT_NODE_RANK": "-1"}, "SKYPILOT_NODE_RANK=-1"),
    ("sagemaker", {**SAGEMAKER, "SM_CURRENT_HOST": "algo-3"}, "SM_CURRENT_HOST=algo-3: not one of"),
    ("sagemaker", {**SAGEMAKER, "SM_HOSTS": "algo-1"}, "SM_HOSTS='algo-1': must be a JSON list"),
    ("sagemaker", {**SAGEMAKER, "SM_HOSTS": "[1]"}, "SM_HOSTS"),
    ("sagemaker", {"SM_HOSTS": '["a"]'}, "SM_CURRENT_HOST is not set"),
    ("vertex", {"CLUSTER_SPEC": "{}"}, "CLUSTER_SPEC='{}': must be JSON"),
    ("vertex", vertex(WORKERS, "workerpool1", 1), "its task is not in its cluster"),
    ("vertex", vertex(WORKERS, "workerpool9", 0), "workerpool0 to workerpool3"),
    ("tf-config", {"TF_CONFIG": TF_CONFIG["TF_CONFIG"].replace("b:2", "b")}, "address 'b' .* has no port"),
    ("tf-config", {"TF_CONFIG": TF_CONFIG["TF_CONFIG"].replace("b:2", "b:70000")}, "address 'b:70000'"),
]


@pytest.mark.parametrize(("name", "environ", "says"), WRONG)
def test_a_malformed_environment_is_refused_in_one_sentence(name, environ, says):
    with pytest.raises(TfdistError, match=says) as error:
        inherited(SourceName(name), environ, None, f"--inherit {name}")
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", ["tf-config", "vertex"])
def test_a_port_is_refused_if_the_environment_has_ports(name):
    environ = {**TF_CONFIG, **vertex(WORKERS, "workerpool0", 0)}
    with pytest.raises(TfdistError, match=r"--port 5000: .* has the ports; omit --port"):
        inherited(SourceName(name), environ, 5000, "")


def test_a_port_that_does_not_exist_is_refused():
    with pytest.raises(TfdistError, match="--port 65535"):
        inherited(SourceName.SLURM, SLURM, 65535, "")
