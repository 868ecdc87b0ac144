"""A chief without parameter servers is worker 0, in the view of every task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.inherit.table import normalize

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
