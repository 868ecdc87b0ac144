import json
import socket
import sys
from dataclasses import replace

import pytest

from tfdist.launch.agents.fleet import connect
from tfdist.launch.cluster import Task
from tfdist.launch.doctor.preflight import (
    Target,
    dials,
    preflight,
    unequal,
    unequal_gpus,
    unreached,
    without_tensorflow,
)
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy

PROGRAM = Program(("true",), {}, "/")
LOCAL = Host("here", "10.0.0.9", local=True)
H1, H2, H3 = (Host(f"h{number}", f"10.0.0.{number}") for number in (1, 2, 3))


def hello(python="3.11.7", **packages):
    return {"python": python, "packages": packages, "executable": "/usr/bin/python3"}


def roles(**counts):
    return {role: RoleShape(count) for role, count in counts.items()}


def job(counts, *hosts, leader=None, cluster=True, slots=None):
    machines = {host: Machine((0,), (), slots=slots) for host in hosts}
    return plan_job(Shape(roles(**counts), cluster, leader), PROGRAM, machines)


def names(targets):
    return [target.task.name for target in targets]


def test_other_gpus_than_the_first_hosts_are_told_of():
    a, b = {"gpus": ["A100", "A100"]}, {"gpus": ["V100"]}
    (note,) = unequal_gpus({H1: a, H2: b, H3: a})
    assert note.host == "h2"
    assert "its GPUs are V100 and those of h1 A100: the slowest" in note.text
    assert list(unequal_gpus({H1: {"gpus": []}, H2: b})) == []


# --- versions

BOTH = {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}


def test_equal_versions_are_no_problem():
    assert list(unequal({H1: hello("3.11.2", **BOTH), H2: hello("3.11.9", **BOTH)})) == []
    assert list(unequal({H1: hello(), H2: hello()})) == []  # a program of the user's may need no TensorFlow


def test_unequal_versions_are_named_with_host_and_both_values():
    (python,) = unequal({H1: hello("3.11.7", **BOTH), H2: hello("3.10.1", **BOTH)})
    assert "python is not the same everywhere: h1 has 3.11, h2 has 3.10" in python
    (keras,) = unequal({H1: hello(**BOTH), H2: hello(**BOTH | {"tf_keras": "2.20.1"})})
    assert "tf_keras is not the same everywhere: h1 has 2.21.0, h2 has 2.20.1" in keras
    assert "--python" in keras


def test_a_package_that_only_one_host_lacks_is_a_difference():
    hellos = {H1: hello(**BOTH), H2: hello(tf_keras="2.21.0")}
    (sentence,) = unequal(hellos)
    assert "tensorflow is not the same everywhere: h1 has 2.21.0, h2 has none" in sentence
    assert list(unequal(hellos, but_missing=True)) == []


def test_a_host_that_cannot_train_is_named_with_its_python():
    (sentence,) = without_tensorflow({H1: hello(**BOTH), H2: hello()})
    assert sentence.startswith("h2 has no tensorflow and no tf_keras for /usr/bin/python3")
    assert "--python" in sentence


# --- who dials whom


def test_one_machine_alone_dials_nobody():
    assert dials(job({"worker": 4}, LOCAL)) == {}
    assert dials(job({"worker": 2}, H1, H2, cluster=False, slots=1)) == {}


def test_up_to_64_workers_every_host_dials_all_its_own_included():
    found = dials(job({"worker": 64}, H1, H2, slots=32))
    assert {host: len(targets) for host, targets in found.items()} == {H1: 64, H2: 64}
    assert found[H1][40] == Target(Task("worker", 40), H2)


def test_above_that_the_ring_neighbour_and_the_leader():
    found = dials(job({"worker": 66}, H1, H2, H3, slots=22))
    assert set(names(found[H1])) == {f"worker-{index}" for index in range(23)}
    assert set(names(found[H2])) == {"worker-0"} | {f"worker-{index}" for index in range(23, 45)}
    assert set(names(found[H3])) == {"worker-0"} | {f"worker-{index}" for index in range(45, 66)}


def test_workers_of_parameter_servers_need_not_reach_each_other():
    found = dials(job({"chief": 1, "worker": 2, "ps": 1}, H1, H2, leader="chief-0", slots=1))
    assert set(names(found[H1])) == {"chief-0", "worker-0", "worker-1", "ps-0"}  # the chief and the ps are there
    assert set(names(found[H2])) == {"chief-0", "worker-1", "ps-0"}


def test_many_workers_reach_the_chief_and_all_parameter_servers():
    ps = Host("p", "10.0.0.7", role="ps")
    machines = {H1: Machine((0,), (), slots=40), H2: Machine((0,), (), slots=40), ps: Machine((0,), (), slots=3)}
    big = plan_job(Shape(roles(chief=1, worker=80, ps=3), True, "chief-0"), PROGRAM, machines)
    found = dials(big)
    assert {"chief-0", "ps-0", "ps-1", "ps-2"} <= set(names(found[H2]))
    others = set(range(40))
    assert not others & {target.task.index for target in found[H2] if target.task.role == "worker"}


# --- what is said of a pair


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("refused", "nothing listens at that address"),
        ("timed out", "a firewall drops it: open the port"),
        ("not resolved", "say addr="),
        ("something else answers there", "another machine's"),
        ("No route to host", "(no route to host): a firewall rejects it or there is no route"),
    ],
)
def test_both_ends_the_port_and_the_likely_cause_are_named(why, says):
    sentence = unreached(H1, Target(Task("worker", 1), H2), 5001, why)
    assert sentence.startswith("h1 cannot reach worker-1 on h2 at 10.0.0.2:5001 (")
    assert says in sentence


def test_an_ipv6_peer_is_named_in_brackets():
    peer = Target(Task("worker", 1), Host("h6", "2001:db8::6"))
    assert "at [2001:db8::6]:5001 " in unreached(H1, peer, 5001, "refused")


# --- with real agents; two on this machine stand in for two hosts

ONE, TWO = (Host(name, "127.0.0.1", python=sys.executable) for name in ("one", "two"))
QUICK = Policy(dial_s=1.0)


def run(planned, hosts=(ONE, TWO), needs_tensorflow=False):
    with connect(hosts, QUICK) as fleet:
        return preflight(planned, fleet, needs_tensorflow)


def test_a_job_that_can_start_has_its_ports_and_its_cluster():
    planned, notes = run(job({"worker": 2}, ONE, TWO, slots=1), needs_tensorflow=True)
    (first, second) = json.loads(planned.environment(planned.plans[0])["TF_CONFIG"])["cluster"]["worker"]
    assert first != second
    assert first.startswith("127.0.0.1:")
    assert not first.endswith(":0")
    assert [plan.program.cwd for plan in planned.plans] == ["/", "/"]
    assert notes == ()


def test_a_peer_that_cannot_be_reached_stops_the_job_before_any_task():
    away = Host("away", "no-such-host.invalid", python=sys.executable)
    with pytest.raises(TfdistError) as caught:
        run(job({"worker": 2}, ONE, away, slots=1), (ONE, away))
    lines = str(caught.value).splitlines()
    assert [line.partition(" at ")[0] for line in lines] == [
        "one cannot reach worker-1 on away", "away cannot reach worker-1 on away",
    ]  # fmt: skip
    assert caught.value.exit_code == ExitCode.HOST_LOST


def test_of_many_pairs_some_are_said_and_the_rest_is_counted():
    away = Host("away", "no-such-host.invalid", python=sys.executable)
    with pytest.raises(TfdistError) as caught:
        run(job({"worker": 12}, ONE, away, slots=6), (ONE, away))
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (9, "and 4 more")


def test_a_port_that_is_taken_there_is_named_with_its_host():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        fixed = Host("fixed", "127.0.0.1", python=sys.executable, port=port)
        with pytest.raises(TfdistError, match=f"port {port} on fixed cannot be used"):
            run(job({"worker": 2}, ONE, fixed, slots=1), (ONE, fixed))


def test_a_folder_that_is_not_there_is_said_and_one_that_was_asked_for_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    machines = {host: Machine((0,), (), slots=1) for host in (ONE, TWO)}
    nowhere = plan_job(Shape(roles(worker=2), True), Program(("true",), {}, "/no/such/folder"), machines)
    planned, notes = run(nowhere)
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path)}
    assert [note.host for note in notes] == ["one", "two"]
    assert all("/no/such/folder is not there" in note.text and "--chdir" in note.text for note in notes)
    asked = Host("asked", "127.0.0.1", python=sys.executable, chdir="/no/such/folder")
    with pytest.raises(TfdistError, match="asked: the folder /no/such/folder does not exist"):
        run(job({"worker": 2}, ONE, asked, slots=1), (ONE, asked))


def test_a_folder_below_the_hosts_own_home(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    there = Host("there", "127.0.0.1", python=sys.executable, chdir="~/work")
    planned, _ = run(job({"worker": 2}, there, slots=2), (there,))
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path / "work")}


def test_a_folder_of_this_machine_is_looked_for_too(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    here = replace(LOCAL, chdir="~/work")
    planned, notes = run(job({"worker": 2}, here, slots=2), (here,))
    assert {plan.program.cwd for plan in planned.plans} == {str(tmp_path / "work")}
    assert notes == ()
    nowhere = replace(LOCAL, chdir="/no/such/folder")
    with pytest.raises(TfdistError, match="here: the folder /no/such/folder does not exist"):
        run(job({"worker": 2}, nowhere, slots=2), (nowhere,))
