"""A chief without parameter servers is worker 0, in the view of every task."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.table import (
    SOURCES,
    SourceName,
    detect,
    earlier_on_host,
    inherited,
    normalize,
    on_same_host,
    split,
    workers_on,
)

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
    ("vertex", vertex(WORKERS, "workerpool1", 1), "its task workerpool1:1 is not in its cluster"),
    ("vertex", vertex(WORKERS, "workerpool9", 0), "unknown task type .workerpool9.; use workerpool0, "),
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


CLUSTER = Cluster({"worker": ("a:1", "b:1", "a:2", "[fd00::1]:1"), "ps": ("a:3",), "evaluator": ("e:1",)})


def test_host_and_port_of_an_address():
    assert split("demo-worker-0-1.demo:2222") == ("demo-worker-0-1.demo", 2222)
    assert split("[fd00::1]:2222") == ("fd00::1", 2222)


@pytest.mark.parametrize("address", ["a", ":1", "a:", "a:0", "a:65536", "a:\u0662", "a:-1", ""])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(TfdistError, match="has no port: write it as host:port"):
        split(address)


@pytest.mark.parametrize(
    ("task", "earlier", "same"),
    [
        (Task("worker", 0), 0, 2),
        (Task("worker", 1), 0, 1),
        (Task("worker", 2), 1, 2),
        (Task("ps", 0), 0, 1),
        (Task("evaluator", 1), 0, 1),
    ],
)
def test_tasks_of_a_role_on_one_host_are_counted(task, earlier, same):
    assert (earlier_on_host(CLUSTER, task), on_same_host(CLUSTER, task)) == (earlier, same)


def test_ports_are_counted_on_each_host():
    assert workers_on(["a", "b", "a"], 5000) == Cluster({"worker": ("a:5000", "b:5000", "a:5001")})
    with pytest.raises(TfdistError, match="--port 65535: invalid for 2 tasks"):
        workers_on(["a", "b", "a"], 65535)


def test_control_characters_in_an_address_are_refused():
    with pytest.raises(TfdistError, match=r"the address in the environment, 'a\\x9b:1': has a line break or another"):
        split("a\x9b:1")


ADDRESSES = st.lists(st.from_regex(r"h[0-9]{1,3}:[0-9]{4}", fullmatch=True), max_size=4).map(tuple)
CLUSTERS = st.fixed_dictionaries(
    {"chief": st.tuples(st.just("c:1")), "worker": ADDRESSES}, optional={"ps": ADDRESSES, "evaluator": ADDRESSES}
)


@given(CLUSTERS)
def test_all_tasks_see_one_cluster_and_are_its_tasks(addresses):
    tasks = [Task(role, index) for role, hosts in addresses.items() for index in range(len(hosts))]
    found = [normalize(Cluster(addresses), task) for task in tasks]
    (cluster,) = {str(cluster): cluster for cluster, _ in found}.values()
    assert len({task for _, task in found}) == len(tasks)
    for before, (_, after) in zip(tasks, found, strict=True):
        assert cluster.addresses[after.role][after.index] == addresses[before.role][before.index]
    assert bool(cluster.addresses.get("chief")) == bool(addresses.get("ps"))


@pytest.mark.parametrize(
    ("addresses", "task", "expected"),
    [
        ({"chief": ("c:1",), "worker": ("w:1",)}, Task("chief", 0), ({"worker": ("c:1", "w:1")}, Task("worker", 0))),
        ({"chief": ("c:1",), "worker": ("w:1",)}, Task("worker", 0), ({"worker": ("c:1", "w:1")}, Task("worker", 1))),
        ({"chief": ("c:1",)}, Task("chief", 0), ({"worker": ("c:1",)}, Task("worker", 0))),
        ({"chief": ("c:1",)}, Task("evaluator", 0), ({"worker": ("c:1",)}, Task("evaluator", 0))),
        ({"worker": ("w:1",)}, Task("worker", 0), ({"worker": ("w:1",)}, Task("worker", 0))),
    ],
)
def test_a_chief_without_ps_is_worker_0(addresses, task, expected):
    cluster, task = normalize(Cluster(addresses), task)
    assert (dict(cluster.addresses), task) == expected
