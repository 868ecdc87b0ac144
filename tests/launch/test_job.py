import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, near_gpus, plan_job
from tfdist.launch.machine import Machine, local_machines

from .jobs import roles

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


PROGRAM = Program(("true",), {"A": "b"}, "/")
FOUR = Machine((0, 1, 2, 3), ())


def plan(shape, machine=FOUR):
    return plan_job(shape, PROGRAM, local_machines(machine))


def test_workers_are_pinned_to_consecutive_cores():
    job = plan(Shape(roles(worker=2), has_cluster=True, devices=2, cores_per_device=1))
    assert [each.cores for each in job.plans] == [(0, 1), (2, 3)]


def test_with_too_few_cores_workers_share_them():
    job = plan(Shape(roles(worker=3), True, cores_per_device=2))
    assert [each.cores for each in job.plans] == [(0, 1), (2, 3), (0, 1)]


def test_chief_and_ps_share_the_workers_cores():
    job = plan(Shape(roles(chief=1, worker=2, ps=1), True, cores_per_device=1))
    assert {each.task.name: each.cores for each in job.plans} == {
        "chief-0": (0, 1), "worker-0": (0,), "worker-1": (1,), "ps-0": (0, 1),
    }  # fmt: skip


@pytest.mark.parametrize(("cores", "expected"), [((0, 1, 2, 3), (2, 3)), ((0, 1), (0, 1))])
def test_a_follower_gets_the_cores_that_no_worker_has_and_no_port(cores, expected):
    followed = {**roles(worker=2), "evaluator": RoleShape(1, computes=False, leads=False, follows=True)}
    job = plan(Shape(followed, True, cores_per_device=1, base_port=3000), Machine(cores, ()))
    evaluator = job.plans[2]
    assert (evaluator.cores, evaluator.port) == (expected, None)
    assert evaluator.program.env["TF_NUM_INTRAOP_THREADS"] == "2"
    assert plan(Shape(followed, True)).plans[2].cores == ()


def test_by_default_nothing_is_pinned_and_thread_pools_are_unchanged():
    (only,) = plan(Shape(roles(worker=1), False)).plans
    assert only.cores == ()
    assert only.program.env == {"A": "b"}


def test_thread_pools_have_a_thread_per_core():
    (only,) = plan(Shape(roles(worker=1), False, devices=2, cores_per_device=2)).plans
    assert only.program.env["TF_NUM_INTRAOP_THREADS"] == "4"


def test_each_worker_sees_its_gpus_and_a_ps_none():
    machine = Machine((0, 1), ("A100",) * 4)
    job = plan(Shape(roles(chief=1, worker=2, ps=1), True, devices=2, cores_per_device=1, gpus=True), machine)
    seen = {each.task.name: each.program.env["CUDA_VISIBLE_DEVICES"] for each in job.plans}
    assert seen == {"chief-0": "-1", "worker-0": "0,1", "worker-1": "2,3", "ps-0": "-1"}
    assert all(each.cores == () for each in job.plans)


def test_tasks_with_gpus_run_on_the_cores_near_them_with_tensorflows_own_thread_pools():
    machine = Machine((0, 1, 2, 3), ("A100",) * 2, gpu_cores=((0, 1), (2, 3)))
    job = plan(Shape(roles(chief=1, worker=2, ps=1), True, cores_per_device=1, gpus=True), machine)
    assert {each.task.name: each.cores for each in job.plans} == {
        "chief-0": (), "worker-0": (0, 1), "worker-1": (2, 3), "ps-0": (),
    }  # fmt: skip
    assert not any("TF_NUM_INTRAOP_THREADS" in each.program.env for each in job.plans)


@pytest.mark.parametrize(("workers", "devices"), [(1, 4), (2, 2), (4, 1)])
def test_all_tasks_see_the_one_gpu_that_is_cut(workers, devices):
    machine = Machine((0, 1), ("A100",), ("1",))
    job = plan(Shape(roles(worker=workers), True, devices=devices, gpus=True, logical_gpus=4), machine)
    assert {each.program.env["CUDA_VISIBLE_DEVICES"] for each in job.plans} == {"1"}
    with pytest.raises(TfdistError, match="4 GPUs for"):
        plan(Shape(roles(worker=workers + 1), True, devices=devices, gpus=True, logical_gpus=4), machine)


@given(
    workers=st.integers(1, 9),
    devices=st.integers(1, 9),
    each=st.integers(1, 4),
    cores=st.sets(st.integers(0, 200), min_size=1, max_size=9),
)
def test_tasks_are_pinned_only_to_cores_of_the_machine(workers, devices, each, cores):
    job = plan(
        Shape(roles(worker=workers), True, devices=devices, cores_per_device=each), Machine(tuple(sorted(cores)), ())
    )
    for one in job.plans:
        assert set(one.cores) <= cores
        assert len(one.cores) == min(devices * each, len(cores))


def test_tasks_have_consecutive_ports_from_the_fixed_one():
    job = plan(Shape(roles(chief=1, worker=2), True, base_port=5000))
    assert [each.port for each in job.plans] == [5000, 5001, 5002]


def test_with_ports_every_task_has_a_tf_config():
    job = plan(Shape(roles(worker=2), True)).with_ports({"worker-0": 7, "worker-1": 8})
    values = [json.loads(job.environment(each)["TF_CONFIG"]) for each in job.plans]
    assert [value["task"]["index"] for value in values] == [0, 1]
    assert all(value["cluster"] == {"worker": ["127.0.0.1:7", "127.0.0.1:8"]} for value in values)
    assert job.environment(job.plans[1])["TFDIST_TASK"] == "worker-1"
    assert job.environment(job.plans[1])["TF_GRPC_REUSE_PORT"] == "true"


@pytest.mark.parametrize("counts", [{"worker": 1}, {"worker": 3}])
def test_without_a_cluster_there_are_no_ports_and_no_tf_config(counts):
    job = plan(Shape(roles(**counts), has_cluster=False)).with_ports({})
    assert all(each.port is None for each in job.plans)
    assert all("TF_CONFIG" not in job.environment(each) for each in job.plans)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Shape(roles(worker=2), True, base_port=65535), "65534"),
        (Shape(roles(worker=1), True, base_port=0), "--port 0"),
        (Shape(roles(worker=1), False, base_port=5000), "omit --port"),
    ],
)
def test_invalid_or_unused_ports_are_refused(shape, expected):
    with pytest.raises(TfdistError, match=expected):
        plan(shape)


def test_tasks_get_gpus_by_their_visible_ids():
    machine = Machine((0,), ("A", "B"), ("3", "GPU-ab"))
    job = plan(Shape(roles(worker=2), True, gpus=True), machine)
    assert [each.program.env["CUDA_VISIBLE_DEVICES"] for each in job.plans] == ["3", "GPU-ab"]


# --- several hosts

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "2001:db8::2")


def plan_on(machines, shape):
    return plan_job(shape, PROGRAM, machines)


def slots(number, cores=(0, 1, 2, 3), gpus=()):
    return Machine(cores, gpus, slots=number)


def test_each_host_pins_to_its_own_cores():
    shape = Shape(roles(worker=3), True, devices=2, cores_per_device=1)
    job = plan_on({H1: slots(2), H2: slots(1, cores=(8, 9, 10, 11))}, shape)
    assert [(each.host.name, each.cores) for each in job.plans] == [("h1", (0, 1)), ("h1", (2, 3)), ("h2", (8, 9))]


def test_a_ps_shares_the_cores_of_the_workers_on_its_host():
    shape = Shape(roles(chief=1, worker=2, ps=2), True, cores_per_device=1)
    job = plan_on({H1: slots(1), H2: slots(1, cores=(5, 6))}, shape)
    assert {each.task.name: each.cores for each in job.plans} == {
        "chief-0": (0,), "worker-0": (0,), "worker-1": (5,), "ps-0": (0,), "ps-1": (5,),
    }  # fmt: skip


def test_each_host_counts_ports_from_the_start_and_its_port_key_wins():
    own = Host("h3", "10.0.0.3", port=7000)
    job = plan_on({H1: slots(2), own: slots(2)}, Shape(roles(worker=4), True, base_port=5000))
    assert [each.port for each in job.plans] == [5000, 5001, 7000, 7001]
    free = plan_on({H1: slots(1), own: slots(1)}, Shape(roles(worker=2), True))
    assert [each.port for each in free.plans] == [0, 7000]


@pytest.mark.parametrize(
    ("port", "cluster", "expected"),
    [(65535, True, "h3 port=65535: invalid for 2 tasks"), (7000, False, "omit h3 port=")],
)
def test_an_invalid_port_key_of_a_host_is_refused(port, cluster, expected):
    with pytest.raises(TfdistError, match=expected):
        plan_on({Host("h3", port=port): slots(2)}, Shape(roles(worker=2), cluster))


def test_each_host_assigns_gpus_from_its_first():
    shape = Shape(roles(worker=3), True, devices=2, gpus=True)
    job = plan_on({H1: slots(2, gpus=("A",) * 4), H2: slots(1, gpus=("B",) * 2)}, shape)
    assert [each.program.env["CUDA_VISIBLE_DEVICES"] for each in job.plans] == ["0,1", "2,3", "0,1"]


def test_a_host_with_too_few_gpus_is_refused():
    shape = Shape(roles(worker=2), True, devices=2, gpus=True)
    with pytest.raises(TfdistError, match="h2 has 1 GPU for 1 worker with --devices 2"):
        plan_on({H1: slots(1, gpus=("A",) * 2), H2: slots(1, gpus=("A",))}, shape)


def visible(job):
    return {each.task.name: each.program.env.get("CUDA_VISIBLE_DEVICES") for each in job.plans}


def test_gpus_are_numbered_as_nvidia_smi_does_unless_the_user_says_otherwise():
    machine, shape = local_machines(Machine((0,), ("A",))), Shape(roles(worker=1), True, gpus=True)
    for chosen, order in (({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST")):
        (only,) = plan_job(shape, replace(PROGRAM, env=chosen), machine).plans
        assert only.program.env == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": order}


EVALUATOR = Host("e", "10.0.0.9", role="evaluator", gpus=("2", "3"))


@pytest.mark.parametrize(("workers_gpus", "first"), [((), None), (("A",), "0")])
@pytest.mark.parametrize(("count", "expected"), [(1, ["2,3"]), (2, ["2", "3"]), (3, ["2", "3", "2"])])
def test_a_host_with_role_and_gpus_gives_them_to_its_tasks(workers_gpus, first, count, expected):
    machines = {H1: slots(1, gpus=workers_gpus), EVALUATOR: Machine((0,), ("A", "B"), ("2", "3"), slots=count)}
    shape = Shape(roles(worker=1, evaluator=count), True, gpus=bool(workers_gpus))
    assert visible(plan_on(machines, shape)) == {
        "worker-0": first, **{f"evaluator-{index}": ids for index, ids in enumerate(expected)},
    }  # fmt: skip


def test_without_gpus_a_host_with_a_role_gives_none():
    evaluator = Host("e", "10.0.0.9", role="evaluator")
    machines = {H1: slots(1, gpus=("A",)), evaluator: Machine((0,), ("A",), slots=1)}
    assert visible(plan_on(machines, Shape(roles(worker=1, evaluator=1), True, gpus=True)))["evaluator-0"] == "-1"


def test_tasks_of_a_host_with_hidden_gpus_see_none():
    machines = {H1: Machine((0,), (), slots=1, hide_gpus=True)}
    assert visible(plan_on(machines, Shape(roles(worker=1), True))) == {"worker-0": "-1"}


def test_several_mig_instances_for_one_process_are_refused():
    machine = Machine((0,), ("A100 MIG 3g.20gb",) * 2, ("MIG-a", "MIG-b"))
    with pytest.raises(TfdistError, match=r"--devices 2: localhost has MIG instances.*--workers 2 and omit --devices"):
        plan(Shape(roles(worker=1), True, devices=2, gpus=True), machine)
    assert visible(plan(Shape(roles(worker=2), True, gpus=True), machine)) == {"worker-0": "MIG-a", "worker-1": "MIG-b"}


def test_tasks_on_other_hosts_share_variables_of_the_launcher_unless_set_otherwise():
    shape = Shape(roles(worker=2), True, cores_per_device=1)
    program = replace(PROGRAM, env={"NCCL_DEBUG": "WARN"})
    environ = {"NCCL_DEBUG": "INFO", "TF_CPP_X": "1", "TF_NUM_INTRAOP_THREADS": "9", "HOME": "/root"}
    here = Host("h0", "10.0.0.9", local=True)
    job = plan_job(shape, program, {here: slots(1), H1: slots(1)}).sharing(environ)
    for each in job.plans:
        env = job.environment(each)
        assert (env["NCCL_DEBUG"], env["TF_CPP_X"], env["TF_NUM_INTRAOP_THREADS"]) == ("WARN", "1", "1")
        assert "HOME" not in env
    alone = plan_job(shape, program, {here: slots(2)}).sharing(environ)
    assert "TF_CPP_X" not in alone.environment(alone.plans[0])  # inherited from the launcher


def test_tf_config_brackets_ipv6_addresses():
    job = plan_on({H1: slots(1), H2: slots(1)}, Shape(roles(worker=2), True))
    job = job.with_ports({"worker-0": 5000, "worker-1": 5000})
    cluster = json.loads(job.environment(job.plans[0])["TF_CONFIG"])["cluster"]
    assert cluster == {"worker": ["10.0.0.1:5000", "[2001:db8::2]:5000"]}
    assert job.hosts == (H1, H2)


def test_placeholders_in_the_command_are_the_place_of_each_task():
    words = ("t.py", "--job={job}", "{index}", "{ps_hosts};{worker_hosts}", "{other} {{job}}")
    job = plan_job(Shape(roles(worker=2, ps=1), True), Program(words, {}, "/"), local_machines())
    assert job.command(job.plans[0])[3] == ";"  # before the ports are known
    job = job.with_ports({"worker-0": 7, "worker-1": 8, "ps-0": 9})
    ends = ("127.0.0.1:9;127.0.0.1:7,127.0.0.1:8",)
    assert job.command(job.plans[1]) == ("t.py", "--job=worker", "1", *ends, "{other} {worker}")
    assert job.command(job.plans[2]) == ("t.py", "--job=ps", "0", *ends, "{other} {ps}")


def test_a_python_program_runs_with_each_hosts_interpreter():
    machines = {H1: Machine((0,), (), python="/one/python", slots=1), H2: Machine((0,), (), python="/two", slots=1)}
    job = plan_job(Shape(roles(worker=2), True), Program(("t.py", "-v"), {}, "/", python=True), machines)
    assert [each.program.argv for each in job.plans] == [("/one/python", "t.py", "-v"), ("/two", "t.py", "-v")]


@given(
    shape=st.builds(
        lambda chief, worker, ps: {k: v for k, v in (("chief", chief), ("worker", worker), ("ps", ps)) if v},
        st.integers(0, 1), st.integers(1, 8), st.integers(0, 3),
    ),
    room=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)  # fmt: skip
def test_on_any_hosts_tasks_keep_their_order_and_ports_are_unique(shape, room):
    machines = {Host(f"h{at}", f"10.0.0.{at}"): slots(number) for at, number in enumerate(room)}
    try:
        job = plan_on(machines, Shape(roles(**shape), True, base_port=5000))
    except TfdistError:
        return
    assert [each.task.role for each in job.plans] == [role for role, number in shape.items() for _ in range(number)]
    assert len({(each.host, each.port) for each in job.plans}) == len(job.plans)
    assert all(5000 <= each.port < 5000 + len(job.plans) for each in job.plans)
