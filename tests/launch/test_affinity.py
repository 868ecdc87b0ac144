from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.affinity import near_gpus
from tfdist.launch.machine import Machine

FIRST, SECOND = (0, 4, 1, 5), (2, 6, 3, 7)
"""Two NUMA nodes with two cores of two hardware threads each."""
MACHINE = Machine(tuple(range(8)), ("A100",) * 4, gpu_cores=(FIRST, FIRST, SECOND, SECOND))


def test_tasks_on_one_node_share_its_cores_and_keep_the_threads_of_a_core_together():
    assert near_gpus(1, 4, MACHINE) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_a_task_alone_on_its_node_gets_all_of_its_cores():
    assert near_gpus(1, 1, MACHINE) == ((0, 1, 4, 5),)
    assert near_gpus(2, 2, MACHINE) == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_a_task_with_gpus_on_all_nodes_is_not_pinned():
    assert near_gpus(4, 1, MACHINE) == ((),)


def test_cores_that_tasks_may_not_use_are_left_out():
    allowed = Machine((0, 1, 2, 3), MACHINE.gpus, gpu_cores=MACHINE.gpu_cores)
    assert near_gpus(1, 4, allowed) == ((0,), (1,), (2,), (3,))


def test_with_fewer_cores_than_tasks_all_tasks_of_a_node_share_them():
    small = Machine((0, 2, 3, 6, 7), MACHINE.gpus, gpu_cores=((0,), (0,), SECOND, SECOND))
    assert near_gpus(1, 4, small)[:2] == ((0,), (0,))


def test_gpus_of_an_unknown_node_are_not_pinned():
    assert near_gpus(1, 2, Machine((0, 1), ("A", "A"))) == ((), ())
    assert near_gpus(2, 1, Machine((0, 1, 2), ("A", "A"), gpu_cores=((0, 1), ()))) == ((),)


@given(cores=st.integers(1, 64), tasks=st.integers(1, 9))
def test_shares_are_disjoint_and_use_all_cores_of_the_node(cores, tasks):
    machine = Machine(tuple(range(cores + 1)), ("A",) * tasks, gpu_cores=(tuple(range(cores)),) * tasks)
    shares = near_gpus(1, tasks, machine)
    assert {core for share in shares for core in share} == set(range(cores))
    if tasks <= cores:
        assert sum(map(len, shares)) == cores
