"""The checks of a survey; no host is contacted."""

from dataclasses import replace

import pytest

from tfdist.launch.agents.messages import Prepared
from tfdist.launch.doctor.checks import Verdict, can_start, run_checks
from tfdist.launch.doctor.preflight import Link
from tfdist.launch.doctor.problems import port_problem
from tfdist.launch.doctor.survey import Survey, hosts_to_dial
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.hosts.transport import connection_problem

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "10.0.0.2")
HELLO = {
    "python": "3.12.3",
    "executable": "/usr/bin/python3",
    "packages": {"tensorflow": "2.21.0", "tf_keras": "2.21.0"},
    "cores": [0, 1, 2, 3],
    "core_limit": None,
    "memory_bytes": 16e9,
    "memory_free_bytes": 8e9,
    "disk_free_bytes": 50e9,
    "gpus": [],
    "gpu_ids": [],
    "gpu_uuids": [],
    "gpu_processes": [],
    "gpu_faults": [],
    "gpus_hidden": 0,
    "gpu_devices": 0,
    "driver": "",
    "cuda_missing": [],
}
GPU = {"gpus": ["A100"], "gpu_ids": ["0"], "gpu_uuids": ["GPU-a"], "gpu_devices": 1, "driver": "550.54.15"}
FAST = Link(0.0002, 117e6)
CUT = Problem("the link could not be measured (timed out)", "check the MTU")


def sound(*hosts):
    """A survey without any problem."""
    return Survey(
        hosts,
        dict.fromkeys(hosts, HELLO),
        behind_s=dict.fromkeys(hosts, 0.05),
        tasks=dict.fromkeys(hosts, 1),
        folders={host: Prepared("/work", "/work") for host in hosts},
        ports=dict.fromkeys(hosts, (5000,)),
        dial_errors={(one, other, 5000): "" for one in hosts for other in hosts},
        links={(one, other): FAST for one in hosts for other in hosts if one != other},
    )


def changed(host=H2, **values):
    """The same, but one host reports other values."""
    survey = sound(H1, H2)
    return replace(survey, hellos={**survey.hellos, host: {**HELLO, **values}})


def bad(survey):
    """Verdict, check, host, text and fix of each row that is not ok."""
    rows = [row for row in run_checks(survey) if row.verdict is not Verdict.OK]
    return [(str(row.verdict), row.check, row.host, f"{row.text} -> {row.fix}") for row in rows]


def only(survey):
    """The one row that is not ok."""
    (row,) = bad(survey)
    return row


def test_sound_hosts_pass_every_check():
    rows = run_checks(sound(H1, H2))
    checks = ("connection", "folder", "Python", "packages", "GPUs", "memory", "cores", "disk", "clock", "ports")
    assert [(row.check, row.host) for row in rows] == [
        *((check, host) for check in checks for host in ("h1", "h2")),
        ("reachability", "h1"), ("reachability", "h2"), ("link", "h1 -> h2"), ("link", "h2 -> h1"),
    ]  # fmt: skip
    assert {row.verdict for row in rows} == {Verdict.OK}
    assert not any(row.fix for row in rows)
    assert can_start(rows)


def test_a_single_machine_has_no_connection_and_no_clock_row():
    survey = replace(sound(LOCAL), dial_errors={})
    rows = run_checks(survey)
    assert {"connection", "clock", "reachability", "link"}.isdisjoint(row.check for row in rows)
    assert can_start(rows)


def test_every_row_that_is_not_ok_has_a_fix():
    survey = replace(
        changed(gpu_devices=1, memory_free_bytes=1e8, disk_free_bytes=1e6, cores=[], python="3.10.1", packages={}),
        behind_s={H1: -3.5, H2: 0.0},
        folders={H1: Prepared("/a", "/root"), H2: Prepared("/a", "")},
        port_problems={H1: port_problem(H1, 5000, "Address already in use")},
        dial_errors={(H1, H2, 5000): "timed out"},
        links={(H1, H2): CUT, (H2, H1): Link(0.2, 1e9)},
        tf_config=True,
    )
    rows = [row for row in run_checks(survey) if row.verdict is not Verdict.OK]
    assert len(rows) == 14
    assert all(row.text and row.fix for row in rows)


def test_an_unconnected_host_fails_and_the_others_are_still_checked():
    down = replace(H2, needs_quoting=True)
    lost = {down: connection_problem(down, "ssh: connect to host h2 port 22: Connection refused")}
    survey = replace(sound(H1), hosts=(H1, down), lost=lost)
    verdict, check, host, text = only(survey)
    assert (verdict, check, host) == ("failed", "connection", "h2")
    assert "nothing listens on the SSH port" in text
    assert "start sshd on the host" in text
    assert [row.check for row in run_checks(survey) if row.host == "h1"][:3] == ["connection", "folder", "Python"]


def test_a_failure_of_unknown_cause_has_a_fix():
    survey = replace(
        sound(LOCAL), hellos={}, ports={}, dial_errors={}, lost={LOCAL: connection_problem(LOCAL, "MemoryError")}
    )
    assert not only(survey)[3].endswith("-> ")


def test_a_lost_host_fails_once():
    survey = replace(sound(H1, H2), lost={H2: Problem("lost the agent (Broken pipe)", "retry")}, links={(H1, H2): CUT})
    assert only(survey)[:3] == ("failed", "connection", "h2")


def test_versions_must_be_equal_on_all_hosts():
    verdict, check, host, text = only(changed(python="3.11.9"))
    assert (verdict, check, host) == ("failed", "Python", "all hosts")
    assert "h1 has 3.12, h2 has 3.11" in text
    assert bad(changed(python="3.12.99")) == []
    text = only(changed(packages={"tensorflow": "2.20.0", "tf_keras": "2.21.0"}))[3]
    assert "tensorflow differs between hosts: h1 has 2.21.0, h2 has 2.20.0" in text


def test_a_missing_package_is_one_row():
    verdict, check, host, text = only(changed(packages={"tensorflow": "2.21.0"}))
    assert (verdict, check, host) == ("failed", "packages", "h2")
    assert "/usr/bin/python3 has no tf_keras" in text


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        ({"gpu_devices": 1}, "failed", "--gpus all"),
        ({"gpu_devices": 2, "gpus_hidden": 2}, "warning", "CUDA_VISIBLE_DEVICES hides 2 GPUs"),
        (
            {**GPU, "gpu_faults": ["GPU 0: 2 uncorrectable memory errors"], "cuda_missing": ["libcudnn.so.9"]},
            "warning",
            "GPU 0: 2 uncorrectable memory errors -> see 'nvidia-smi -q' on the host, or --exclude it",
        ),
        ({**GPU, "driver": "470.82.01"}, "warning", "older than 525.60.13"),
        ({**GPU, "driver": "525.60.11"}, "warning", "older than 525.60.13"),
        (
            {**GPU, "cuda_missing": ["libcudnn.so.9"]},
            "warning",
            "CUDA libraries are missing (libcudnn.so.9), so TensorFlow sees no GPU -> "
            "run on the host: /usr/bin/python3 -m pip install 'tensorflow[and-cuda]==2.21.0'",
        ),
        (
            {**GPU, "gpu_processes": [["GPU-a", "7", "python3", "300 MiB"], ["GPU-b", "8", "x", "1 MiB"]]},
            "warning",
            "in use: GPU 0 by python3 (pid 7, 300 MiB) -> end",
        ),
    ],
)
def test_gpus_that_tensorflow_may_not_see_or_shares_are_reported(values, verdict, words):
    survey = replace(sound(LOCAL), dial_errors={}, hellos={LOCAL: {**HELLO, **values}})
    found = only(survey)
    assert found[:2] == (verdict, "GPUs")
    assert words in found[3]


def test_visible_gpus_pass():
    survey = replace(sound(LOCAL), dial_errors={}, hellos={LOCAL: {**HELLO, **GPU}})
    (row,) = [row for row in run_checks(survey) if row.check == "GPUs"]
    assert (row.verdict, row.text) == (Verdict.OK, "A100; driver 550.54.15")


def test_a_missing_gpu_that_the_hostfile_names_fails():
    host = replace(H1, gpus=("0", "3"))
    survey = replace(sound(host), hellos={host: {**HELLO, **GPU}})
    assert only(survey)[:3] == ("failed", "GPUs", "h1")
    assert "no GPU 3" in only(survey)[3]


def test_a_host_that_hides_its_gpus_on_purpose_passes_but_not_beside_others_with_gpus():
    host = replace(H1, gpus=("none",))
    assert bad(replace(sound(host), hellos={host: {**HELLO, "gpu_devices": 1}})) == []
    survey = replace(sound(host, H2), hellos={host: {**HELLO, **GPU}, H2: {**HELLO, **GPU}})
    assert only(survey)[3].startswith("no GPU on h1, but on the others")


def test_workers_need_a_gpu_each_but_parameter_servers_do_not():
    hello = {**HELLO, **GPU}
    assert only(replace(sound(H1), hellos={H1: hello}, tasks={H1: 2}))[:2] == ("failed", "GPUs")
    server = replace(H1, role="ps")
    assert bad(replace(sound(server), hellos={server: hello}, tasks={server: 9})) == []


def test_gpus_on_some_hosts_only_fail():
    verdict, check, host, text = only(changed(**GPU))
    assert (verdict, check, host) == ("failed", "GPUs", "all hosts")
    assert text.startswith("no GPU on h1, but on the others")


def test_unequal_gpus_are_a_warning():
    survey = replace(sound(H1, H2), hellos={H1: {**HELLO, **GPU}, H2: {**HELLO, **GPU, "gpus": ["H100"]}})
    assert only(survey)[:3] == ("warning", "GPUs", "all hosts")


@pytest.mark.parametrize(
    ("host", "values"),
    [
        (H2, {"gpus": ["A100"] * 2, "gpu_ids": ["0", "1"], "gpu_uuids": ["GPU-a", "GPU-b"]}),
        (replace(H2, gpus=("1",)), {"gpus": ["H100", "A100"], "gpu_ids": ["0", "1"], "gpu_uuids": ["GPU-b", "GPU-a"]}),
        (replace(H2, role="ps"), {"gpus": ["H100"]}),
    ],
)
def test_only_the_models_of_gpus_that_workers_may_use_are_compared(host, values):
    hellos = {H1: {**HELLO, **GPU}, host: {**HELLO, **GPU, **values}}
    assert bad(replace(sound(H1, host), hellos=hellos)) == []


@pytest.mark.parametrize(
    ("values", "check"),
    [({"memory_free_bytes": 1.2e9}, "memory"), ({"cores": []}, "cores"), ({"disk_free_bytes": 4e8}, "disk")],
)
def test_scarce_resources_are_a_warning(values, check):
    assert only(changed(**values))[:3] == ("warning", check, "h2")


def test_a_limit_on_cores_is_shown():
    (row,) = [
        row for row in run_checks(changed(cores=[0, 1], core_limit=1.5)) if row.check == "cores" and row.host == "h2"
    ]
    assert (row.verdict, row.text) == (Verdict.OK, "2 cores (a cgroup limits their time to 1.5) for 1 worker")


def test_memory_is_needed_for_every_worker():
    assert bad(replace(sound(H1), tasks={H1: 4})) == []
    survey = replace(sound(H1), hellos={H1: {**HELLO, "cores": list(range(9))}}, tasks={H1: 9})
    assert "9 workers with MobileNetV2 may need 11.7 GB" in only(survey)[3]


@pytest.mark.parametrize(("behind_s", "words"), [(2.5, "2.5 s behind"), (-60.0, "60.0 s ahead of")])
def test_a_clock_that_is_off_is_a_warning(behind_s, words):
    found = only(replace(sound(H1, H2), behind_s={H1: 1.9, H2: behind_s}))
    assert found[:3] == ("warning", "clock", "h2")
    assert words in found[3]


def test_a_missing_folder_is_a_warning_if_the_home_folder_exists():
    assert only(replace(sound(H1), folders={H1: Prepared("/work", "/root")}))[:2] == ("warning", "folder")
    assert only(replace(sound(H1), folders={H1: Prepared("/work", "")}))[:2] == ("failed", "folder")


def test_a_busy_port_fails_with_its_number():
    survey = replace(
        sound(H1), ports={}, dial_errors={}, port_problems={H1: port_problem(H1, 5000, "Address already in use")}
    )
    verdict, check, host, text = only(survey)
    assert (verdict, check, host) == ("failed", "ports", "h1")
    assert "port 5000 cannot be used" in text


def test_a_blocked_port_is_named_with_both_ends():
    survey = sound(H1, H2)
    survey = replace(survey, dial_errors={**survey.dial_errors, (H1, H2, 5000): "timed out"})
    verdict, check, host, text = only(survey)
    assert (verdict, check, host) == ("failed", "reachability", "h2")
    assert text.startswith("h1 cannot reach h2 at 10.0.0.2:5000 (timed out) -> a firewall drops the packets")


def test_unreachable_hosts_have_one_row_per_reason():
    hosts = tuple(Host(f"h{number}", f"10.0.0.{number}") for number in range(20))
    survey = sound(*hosts)
    dial_errors = {key: "" if key[0] == key[1] else "refused" for key in survey.dial_errors}
    rows = bad(replace(survey, dial_errors=dial_errors, links={}))
    assert len(rows) == 20
    assert "h1, h2, h3, h4, h5, h6, h7, h8 and 11 more cannot reach h0" in rows[0][3]


def test_several_ports_are_shortened():
    ports = {H1: (5000, 5001, 5002), H2: tuple(range(6000, 6040, 2))}
    dial_errors = {(one, other, port): "refused" for one, other in ((H2, H1), (H1, H2)) for port in ports[other]}
    texts = [text for *_, text in bad(replace(sound(H1, H2), ports=ports, dial_errors=dial_errors))]
    assert texts[0].startswith("h2 cannot reach h1 at 10.0.0.1, ports 5000, 5001, 5002, (refused)")
    assert texts[1].startswith(
        "h1 cannot reach h2 at 10.0.0.2, ports 6000, 6002, 6004, 6006, 6008, 6010, 6012, 6014 and 12 more, ("
    )


def test_a_slow_link_is_a_warning_with_the_time_per_step():
    found = only(replace(sound(H1, H2), links={(H1, H2): Link(0.0002, 11.7e6), (H2, H1): FAST}))
    assert found[:3] == ("warning", "link", "h1 -> h2")
    assert found[3].startswith("94 Mbit/s, 0.20 ms: the gradients of MobileNetV2 would take 1.2 s per step")


def test_high_latency_is_a_warning_and_a_cut_link_a_failure():
    links = {(H1, H2): Link(0.08, 1e9), (H2, H1): CUT}
    assert [row[:3] for row in bad(replace(sound(H1, H2), links=links))] == [
        ("warning", "link", "h1 -> h2"),
        ("failed", "link", "h2 -> h1"),
    ]


def test_tf_config_in_the_environment_fails():
    assert only(replace(sound(LOCAL), dial_errors={}, tf_config=True))[:2] == ("failed", "environment")


def test_up_to_64_hosts_dial_each_other_and_more_only_those_that_a_ring_uses():
    hosts = [Host(f"h{number}") for number in range(65)]
    assert hosts_to_dial(hosts[:3], hosts[:64]) == dict.fromkeys(hosts[:3], hosts[:64])
    dialled = hosts_to_dial([*hosts, new := Host("new")], hosts)
    assert (dialled[hosts[0]], dialled[new]) == (hosts, hosts[:64])
    assert dialled[hosts[64]] == [hosts[64], hosts[0], hosts[63], hosts[31]]
    assert dialled[hosts[9]] == [hosts[9], hosts[0], hosts[8], hosts[10], hosts[4]]


def test_keras_3_without_tf_keras_is_a_warning():
    survey = changed(packages={"tensorflow": "2.21.0", "keras": "3.15.1"})
    (row,) = (row for row in run_checks(survey) if row.check == "Keras")
    assert (row.verdict, row.host) == (Verdict.WARNING, "h2")
    assert "PerReplica" in row.text
