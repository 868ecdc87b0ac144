"""A chief without parameter servers is worker 0, in the view of every task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.table import earlier_on_host, normalize, on_same_host, peers_of, split, workers_on

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


def test_the_peers_of_a_task_are_all_others_but_evaluators():
    peers = dict(peers_of(CLUSTER, Task("worker", 1)))
    assert peers == {
        Task("worker", 0): "a:1",
        Task("worker", 2): "a:2",
        Task("worker", 3): "[fd00::1]:1",
        Task("ps", 0): "a:3",
    }


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
