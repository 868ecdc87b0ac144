import json
import os
import socket
import sys
from dataclasses import replace

import pytest

from tests.launch.jobs import roles
from tests.launch.supervisors import FakeChannel
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.messages import Dial, DialResult, Prepared, Reserve, Reserved
from tfdist.launch.cluster import Task
from tfdist.launch.doctor.preflight import (
    Link,
    dial_targets,
    gpu_notes,
    measure_neighbours,
    preflight,
    reserve,
    slowest,
)
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy

PROGRAM = Program(("true",), {}, "/")
BOTH = {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}
LOCAL = Host("here", "10.0.0.9", local=True)
H1, H2, H3 = (Host(f"h{number}", f"10.0.0.{number}") for number in (1, 2, 3))


def hello(python="3.11.7", **packages):
    return {"python": python, "packages": packages, "executable": "/usr/bin/python3"}


def gpus(*models, **values):
    """What a host says of its GPUs; their ids are 0, 1, ..."""
    ids = [str(index) for index in range(len(models))]
    found = {"gpus": models, "gpu_ids": ids, "gpu_uuids": [f"GPU-{one}" for one in ids], "gpu_processes": []}
    driver = {"gpus_hidden": 0, "driver": "570.1", "cuda_missing": [], "packages": BOTH, "executable": "py"}
    return {**found, **driver, **values}


def job(counts, *hosts, cluster=True, slots=None):
    machines = {host: Machine((0,), (), slots=slots) for host in hosts}
    return plan_job(Shape(roles(**counts), cluster), PROGRAM, machines)


def names(tasks):
    return [task.name for task in tasks]


def test_two_hosts_with_one_address_are_refused():
    class Fleet:
        policy = Policy()

        def ask(self, requests, *_):
            return {host: Reserved(request.ports, request="") for host, request in requests.items()}

    twin = replace(H2, address=H1.address)
    reserved, refused = reserve(Fleet(), {H1: (5000, 5001), twin: (5000,), H3: (5000,)}, "token")
    assert reserved.keys() == {H1, twin, H3}
    assert {host.name: problem.sentence for host, problem in refused.items()} == {
        "h2": "has the address of h1, 10.0.0.1:5000; give each its own with addr= in the hostfile"
    }
    assert reserve(Fleet(), {H1: (5000,), twin: (5001,)}, "token")[1] == {}


def test_gpus_of_another_model_are_a_note():
    a, b = gpus("A100", "A100"), gpus("V100")
    (note,) = gpu_notes(job({"worker": 3}, H1, H2, H3, slots=1), {H1: a, H2: b, H3: a})
    assert note.host == "h2"
    assert "its GPUs are V100, those of h1 A100: the slowest" in note.text


def test_only_the_models_of_gpus_that_workers_may_use_are_compared():
    a, b = gpus("A100"), gpus("V100")
    both = gpus("V100", "A100")

    def noted(counts, hellos):
        planned = job(counts, *hellos, slots=1)
        return [note.host for note in gpu_notes(planned, {**hellos, Host("spare"): b})]

    two = {"worker": 2}
    assert noted(two, {H1: a, H2: gpus(*["A100"] * 8)}) == []
    assert noted(two, {H1: gpus(), H2: b}) == []
    assert noted(two, {H1: a, H2: both}) == ["h2"]
    assert noted(two, {H1: a, replace(H2, gpus=("1",)): both}) == []
    assert noted(two, {H1: a, replace(H2, gpus=("GPU-0",)): both}) == ["h2"]
    assert noted(two, {H1: a, replace(H2, gpus=("none",)): b}) == []
    assert noted({"chief": 1, "worker": 2, "ps": 1}, {H1: a, H2: a, replace(H3, role="ps"): b}) == []


def test_a_gpu_in_use_is_a_note_if_a_task_will_see_it():
    hello = gpus("A", "A", gpu_processes=[["GPU-1", "7", "python3", "300 MiB"]])
    for workers, texts in ((1, []), (2, ["in use: GPU 1 by python3 (pid 7, 300 MiB); end the other programs"])):
        machines = {H1: Machine((0,), ("A", "A"), slots=workers)}
        planned = plan_job(Shape(roles(worker=workers), True, gpus=True), PROGRAM, machines)
        notes = list(gpu_notes(planned, {H1: hello}))
        assert [(note.host, note.text.partition(", or")[0]) for note in notes] == [("h1", text) for text in texts]


def test_a_notebook_that_has_taken_the_memory_of_a_gpu_is_told_so():
    hello = gpus("A", gpu_processes=[["GPU-0", str(os.getpid()), "python3", "139 GiB"]])
    for host, words in ((LOCAL, "this process has taken memory of GPU 0"), (H1, "in use: GPU 0 by python3")):
        planned = plan_job(Shape(roles(worker=1), False, gpus=True), PROGRAM, {host: Machine((0,), ("A",), slots=1)})
        (note,) = gpu_notes(planned, {host: hello})
        assert note.text.startswith(words)


def test_gpus_that_tensorflow_will_not_see_are_a_note():
    machines = {host: Machine((0,), (), slots=1) for host in (H1, H2, H3)}
    planned = plan_job(Shape(roles(worker=3), True), PROGRAM, machines)
    assert not list(gpu_notes(planned, {host: gpus("A", cuda_missing=["x"], packages={}) for host in (H1, H2, H3)}))
    hellos = {H1: gpus("A"), H2: gpus("A", cuda_missing=["libcudnn.so.9"]), H3: gpus(gpus_hidden=2)}
    assert [(note.host, note.text) for note in gpu_notes(planned, hellos)] == [
        (
            "h2",
            "CUDA libraries are missing (libcudnn.so.9), so TensorFlow sees no GPU; "
            "run on the host: py -m pip install 'tensorflow[and-cuda]==2.21.0'",
        ),
        ("h3", "CUDA_VISIBLE_DEVICES hides 2 GPUs; run 'unset CUDA_VISIBLE_DEVICES' on the host to use them"),
    ]


class FakeFleet:
    """Two hosts that say hello and nothing more: the preflight of a job without a cluster needs no answer."""

    def __init__(self, one, other):
        self.hellos = {host: {**gpus(), **hello} for host, hello in ((LOCAL, one), (REMOTE, other))}
        self.behind_s = dict.fromkeys(self.hellos, 0.0)
        self.lost, self.channels = {}, {}
        self.policy = Policy()

    def ask(self, requests, what, limit_s, on_wait=None):
        return {host: Prepared(request=1, requested="/", actual="/") for host in requests}


REMOTE = Host("there", "10.0.0.8")


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        (BOTH, None),
        ({"tensorflow": "2.21.0"}, "tf_keras differs between hosts: here has 2.21.0, there has none; it matters if"),
        ({**BOTH, "tf_keras": "2.20.1"}, "there has 2.20.1; it matters if the program uses tf.keras"),
    ],
)
def test_the_users_program_is_not_refused_for_tf_keras(packages, words):
    planned, fleet = (
        job({"worker": 2}, LOCAL, REMOTE, cluster=False, slots=1),
        FakeFleet(hello(**BOTH), hello(**packages)),
    )
    _, notes = preflight(planned, fleet, needs_tensorflow=False)
    assert [words in note.text for note in notes] == ([] if words is None else [True])
    if words is not None:
        with pytest.raises(TfdistError, match="tf_keras"):
            preflight(planned, fleet, needs_tensorflow=True)


def test_the_users_program_is_refused_for_another_tensorflow():
    planned = job({"worker": 2}, LOCAL, REMOTE, cluster=False, slots=1)
    with pytest.raises(TfdistError, match=r"tensorflow differs between hosts: here has 2\.21\.0, there has 2\.20\.0"):
        preflight(planned, FakeFleet(hello(**BOTH), hello(**{**BOTH, "tensorflow": "2.20.0"})), needs_tensorflow=False)


# --- dial targets


def test_a_single_machine_needs_no_dialling():
    assert dial_targets(job({"worker": 4}, LOCAL)) == {}
    assert dial_targets(job({"worker": 2}, H1, H2, cluster=False, slots=1)) == {}


def test_up_to_64_workers_every_host_dials_all_workers():
    found = dial_targets(job({"worker": 64}, H1, H2, slots=32))
    assert {host: len(targets) for host, targets in found.items()} == {H1: 64, H2: 64}
    assert found[H1][40] == Task("worker", 40)


def test_more_workers_dial_their_neighbours_in_the_ring_and_the_tree_and_the_leader():
    found = dial_targets(job({"worker": 66}, H1, H2, H3, slots=22))
    numbers = {host: {task.index for task in targets} for host, targets in found.items()}
    assert numbers == {
        H1: {*range(66)},  # worker-0 reports failures to all
        H2: {0, *range(10, 45)},  # parents of 22 to 43 are 10 to 21
        H3: {0, *range(21, 33), *range(43, 66)},
    }


def test_workers_of_parameter_servers_do_not_dial_each_other():
    found = dial_targets(job({"chief": 1, "worker": 2, "ps": 1}, H1, H2, slots=1))
    assert set(names(found[H1])) == {"chief-0", "worker-0", "worker-1", "ps-0"}
    assert set(names(found[H2])) == {"chief-0", "worker-1", "ps-0"}


def spread(**counts):
    """A job with each task on a host of its own, but the chief on that of the first worker."""
    machines = {Host(f"{role}-{index}", f"{role}-{index}", role=role if role == "ps" else ""): Machine((0,), (), slots=1)
                for role in ("worker", "ps") for index in range(counts.get(role, 0))}  # fmt: skip
    return plan_job(Shape(roles(**counts), has_cluster=True), PROGRAM, machines)


def links(planned):
    """The links between hosts that are tried: source and target by name."""
    found = dial_targets(planned)
    hosts = {plan.task: plan.host.name for plan in planned.plans}
    return {
        (source.name, hosts[task]) for source, tasks in found.items() for task in tasks if source.name != hosts[task]
    }


def names_of(role, number):
    return [f"{role}-{index}" for index in range(number)]


@pytest.mark.parametrize("number", [65, 1000])
def test_all_links_that_a_ring_uses_are_tried_and_few_others(number):
    workers = names_of("worker", number)
    ring = {(worker, workers[rank - 1]) for rank, worker in enumerate(workers)}  # it receives from the one before
    tree = {(workers[rank], workers[(rank - 1) // 2]) for rank in range(1, number)}
    leader = {(worker, workers[0]) for worker in workers[1:]}
    nccl = {(target, source) for source, target in ring}
    failures = {(target, source) for source, target in leader}
    tried = links(spread(worker=number))
    assert tried >= ring | tree | leader | nccl | failures
    assert len(tried) < 5 * number


def test_all_links_that_a_job_with_parameter_servers_uses_are_tried():
    workers, servers = names_of("worker", 100), names_of("ps", 3)
    tried = links(spread(chief=1, worker=100, ps=3))
    chief = workers[0]  # the host
    assert {(chief, other) for other in (*workers[1:], *servers)} <= tried
    assert {(worker, ps) for worker in workers for ps in servers} <= tried
    assert {(ps, worker) for worker in workers for ps in servers} <= tried  # it receives the gradients
    assert not {(one, other) for one in workers[1:] for other in workers[1:]} & tried


class Network(FakeFleet):
    """Hosts that reach each other except on one link."""

    def __init__(self, planned, blocked=()):
        self.hellos = {host: {**gpus(), **hello(**BOTH)} for host in planned.hosts}
        self.behind_s, self.lost, self.policy = dict.fromkeys(self.hellos, 0.0), {}, Policy()
        self.channels = {host: FakeChannel(host) for host in planned.hosts}
        self.blocked = blocked

    def ask(self, requests, what, limit_s, on_wait=None):
        return {host: self.answer(host, request) for host, request in requests.items()}

    def answer(self, host, request):
        match request:
            case Reserve(ports):
                return Reserved(tuple(5000 + at for at in range(len(ports))), request=1)
            case Dial(targets):
                failures = ("timed out" if (host.name, target) == self.blocked else "" for target, _ in targets)
                return DialResult(tuple(failures), request=1)
        return Prepared(request=1, requested="/", actual="/")


@pytest.mark.parametrize("blocked", [("worker-40", "worker-39"), ("worker-40", "worker-19"), ("worker-0", "worker-40")])
def test_a_blocked_link_of_a_large_ring_is_found_before_the_start(blocked):
    planned = spread(worker=70)
    with pytest.raises(TfdistError, match=f"^{blocked[0]} cannot reach {blocked[1]} on {blocked[1]} at .*timed out"):
        preflight(planned, Network(planned, blocked), needs_tensorflow=True)


def test_what_was_not_tried_is_a_note():
    for planned, texts in (
        (
            spread(worker=70),
            [
                "341 of 4,830 links between hosts were tried, to and from worker-0, along the ring of the tasks and the "
                "tree of their broadcasts; the others, which NCCL or your program may use, were not"
            ],
        ),
        (spread(worker=64), []),
        (spread(chief=1, worker=70, ps=2), []),  # all links that it uses
        (job({"worker": 70}, H1, H2, slots=35), []),  # all links between its hosts
    ):
        _, notes = preflight(planned, Network(planned), needs_tensorflow=True)
        assert [note.text for note in notes] == texts


def test_tfdist_is_sent_to_each_host_once_and_is_in_memory_once():
    planned, sent = spread(worker=3), []
    network = Network(planned)
    for channel in network.channels.values():
        channel.has_package, channel.send_encoded = False, sent.append
    for _ in range(2):  # as for a restart on other hosts
        preflight(planned, network, needs_tensorflow=True)
    assert len(sent) == 3
    assert sent[0] is sent[1] is sent[2]


# --- with real agents; two on this machine stand in for two hosts

ONE, TWO, THREE = (Host(name, "127.0.0.1", python=sys.executable) for name in ("one", "two", "three"))
QUICK = Policy(dial_s=4.0)


def run(planned, hosts=(ONE, TWO), needs_tensorflow=False):
    with connect(hosts, QUICK) as fleet:
        return preflight(planned, fleet, needs_tensorflow)


def test_the_preflight_returns_the_job_with_ports_and_cluster():
    planned, notes = run(job({"worker": 2}, ONE, TWO, slots=1), needs_tensorflow=True)
    (first, second) = json.loads(planned.environment(planned.plans[0])["TF_CONFIG"])["cluster"]["worker"]
    assert first != second
    assert first.startswith("127.0.0.1:")
    assert not first.endswith(":0")
    assert [plan.program.cwd for plan in planned.plans] == ["/", "/"]
    assert notes == ()


def test_an_unreachable_task_is_an_error():
    away = Host("away", "no-such-host.invalid", python=sys.executable)
    with pytest.raises(TfdistError) as caught:
        run(job({"worker": 2}, ONE, away, slots=1), (ONE, away))
    lines = str(caught.value).splitlines()
    assert [line.partition(" at ")[0] for line in lines] == [
        "one cannot reach worker-1 on away", "away cannot reach worker-1 on away",
    ]  # fmt: skip
    assert caught.value.exit_code == ExitCode.HOST_LOST


@pytest.mark.slow
def test_of_many_unreachable_pairs_eight_are_named():
    away = Host("away", "no-such-host.invalid", python=sys.executable)
    with pytest.raises(TfdistError) as caught:
        run(job({"worker": 12}, ONE, away, slots=6), (ONE, away))
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (9, "and 4 more")


def test_a_busy_port_is_named_with_its_host():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        fixed = Host("fixed", "127.0.0.1", python=sys.executable, port=port)
        with pytest.raises(TfdistError, match=f"fixed: port {port} cannot be used"):
            run(job({"worker": 2}, ONE, fixed, slots=1), (ONE, fixed))


@pytest.mark.slow
def test_a_missing_folder_is_a_note_and_with_chdir_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    machines = {host: Machine((0,), (), slots=1) for host in (ONE, TWO)}
    nowhere = plan_job(Shape(roles(worker=2), True), Program(("true",), {}, "/no/such/folder"), machines)
    planned, notes = run(nowhere)
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path)}
    assert [note.host for note in notes] == ["one", "two"]
    assert all("/no/such/folder does not exist" in note.text and "--chdir" in note.text for note in notes)
    chosen = Host("chosen", "127.0.0.1", python=sys.executable, chdir="/no/such/folder")
    with pytest.raises(TfdistError, match="chosen: the folder /no/such/folder does not exist"):
        run(job({"worker": 2}, ONE, chosen, slots=1), (ONE, chosen))


def test_a_folder_below_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    remote = Host("remote", "127.0.0.1", python=sys.executable, chdir="~/work")
    planned, _ = run(job({"worker": 2}, remote, slots=2), (remote,))
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path / "work")}


def test_the_folder_of_this_machine_is_checked_too(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    here = replace(LOCAL, chdir="~/work")
    planned, notes = run(job({"worker": 2}, here, slots=2), (here,))
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path / "work")}
    assert notes == ()
    nowhere = replace(LOCAL, chdir="/no/such/folder")
    with pytest.raises(TfdistError, match="here: the folder /no/such/folder does not exist"):
        run(job({"worker": 2}, nowhere, slots=2), (nowhere,))


# --- links


@pytest.mark.slow
def test_a_link_is_measured_between_two_agents():
    with connect([ONE, TWO]) as fleet:
        links = measure_neighbours(fleet, [ONE, TWO])
    assert list(links) == [(ONE, TWO)]
    assert links[ONE, TWO].bytes_per_s > 1e6
    assert 0 < links[ONE, TWO].rtt_s < 1


@pytest.mark.slow
def test_a_link_is_that_of_the_chosen_network():
    hosts = [replace(one, address="256.1.1.1", interface="lo") for one in (ONE, TWO)]
    with connect(hosts) as fleet:
        assert len(measure_neighbours(fleet, hosts)) == 1


def test_an_unreachable_neighbour_is_named():
    away = Host("away", "256.1.1.1", python=sys.executable)
    with connect([ONE, away]) as fleet, pytest.raises(TfdistError, match=r"one cannot reach away at 256\.1\.1\.1"):
        measure_neighbours(fleet, [ONE, away])


def test_the_slowest_link_among_neighbours_counts():
    links = {(ONE, TWO): Link(0.001, 100.0), (TWO, THREE): Link(0.002, 50.0)}
    assert slowest(links, [ONE, TWO]) == {"bytes_per_s": 100.0, "rtt_s": 0.001}
    assert slowest(links, [ONE, TWO, THREE]) == {"bytes_per_s": 50.0, "rtt_s": 0.002}
    assert slowest(links, [ONE]) == slowest(links, [ONE, THREE]) == {}


def test_a_link_as_text():
    assert str(Link(0.00021, 117.6e6)) == "941 Mbit/s, 0.21 ms"
