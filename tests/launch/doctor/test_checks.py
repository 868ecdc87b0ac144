"""Findings in, results out: no host is asked anything."""

from dataclasses import replace

import pytest

from tfdist.launch.doctor.checks import examine
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.results import Survey, TaskFolder, Verdict, can_start
from tfdist.launch.doctor.survey import peers
from tfdist.launch.hosts.host import LOCAL, Host

H1, H2 = Host("h1", "10.0.0.1"), Host("h2", "10.0.0.2")
HELLO = {
    "python": "3.12.3",
    "executable": "/usr/bin/python3",
    "packages": {"tensorflow": "2.21.0", "tf_keras": "2.21.0"},
    "cores": [0, 1, 2, 3],
    "memory_bytes": 16e9,
    "memory_free_bytes": 8e9,
    "disk_free_bytes": 50e9,
    "gpus": [],
    "gpu_ids": [],
    "gpus_hidden": 0,
    "gpu_devices": 0,
    "driver": "",
}
GPU = {"gpus": ["A100"], "gpu_ids": ["0"], "gpu_devices": 1, "driver": "550.54.15"}
FAST = Link(0.0002, 117e6)


def sound(*hosts):
    """What was found of hosts with nothing wrong with them."""
    return Survey(
        hosts,
        dict.fromkeys(hosts, HELLO),
        behind_s=dict.fromkeys(hosts, 0.05),
        tasks=dict.fromkeys(hosts, 1),
        folders={host: TaskFolder("/work", "/work") for host in hosts},
        ports=dict.fromkeys(hosts, (5000,)),
        dialled={(one, other, 5000): "" for one in hosts for other in hosts},
        links={(one, other): FAST for one in hosts for other in hosts if one != other},
    )


def changed(host=H2, **values):
    """The same, but one host says something else."""
    findings = sound(H1, H2)
    return replace(findings, hellos={**findings.hellos, host: {**HELLO, **values}})


def bad(findings):
    """Verdict, check, host, and both texts of every row that is not ok."""
    rows = [row for row in examine(findings) if row.verdict is not Verdict.OK]
    return [(str(row.verdict), row.check, row.host, f"{row.text} -> {row.mend}") for row in rows]


def only(findings):
    """The one row that is not ok."""
    (row,) = bad(findings)
    return row


def test_sound_hosts_have_a_row_for_each_check_and_nothing_to_mend():
    rows = examine(sound(H1, H2))
    checks = ("connection", "folder", "Python", "packages", "GPUs", "memory", "cores", "disk", "clock", "ports")
    assert [(row.check, row.host) for row in rows] == [
        *((check, host) for check in checks for host in ("h1", "h2")),
        ("reachability", "h1"), ("reachability", "h2"), ("link", "h1 -> h2"), ("link", "h2 -> h1"),
    ]  # fmt: skip
    assert {row.verdict for row in rows} == {Verdict.OK}
    assert not any(row.mend for row in rows)
    assert can_start(rows)


def test_this_machine_alone_needs_neither_a_connection_nor_a_clock():
    findings = replace(sound(LOCAL), dialled={})
    rows = examine(findings)
    assert {"connection", "clock", "reachability", "link"}.isdisjoint(row.check for row in rows)
    assert can_start(rows)


def test_every_row_that_is_not_ok_says_what_to_do():
    findings = replace(
        changed(gpu_devices=1, memory_free_bytes=1e8, disk_free_bytes=1e6, cores=[], python="3.10.1", packages={}),
        behind_s={H1: -3.5, H2: 0.0},
        folders={H1: TaskFolder("/a", "/root"), H2: TaskFolder("/a")},
        refused={H1: (5000, "Address already in use")},
        dialled={(H1, H2, 5000): "timed out"},
        links={(H1, H2): "timed out", (H2, H1): Link(0.2, 1e9)},
        tf_config=True,
    )
    rows = [row for row in examine(findings) if row.verdict is not Verdict.OK]
    assert len(rows) == 14
    assert all(row.text and row.mend for row in rows)


def test_a_host_that_cannot_be_reached_fails_with_the_cause_and_the_others_are_still_examined():
    down = replace(H2, needs_quoting=True)
    lost = {down: "ssh: connect to host h2 port 22: Connection refused"}
    findings = replace(sound(H1), hosts=(H1, down), lost=lost)
    verdict, check, host, text = only(findings)
    assert (verdict, check, host) == ("failed", "connection", "h2")
    assert "nothing listens on the SSH port" in text
    assert "start sshd on the host" in text
    assert [row.check for row in examine(findings) if row.host == "h1"][:3] == ["connection", "folder", "Python"]


def test_a_failure_without_a_known_cause_has_a_mend_all_the_same():
    findings = replace(sound(LOCAL), hellos={}, ports={}, dialled={}, lost={LOCAL: "who knows"})
    assert not only(findings)[3].endswith("-> ")


def test_a_host_that_was_lost_on_the_way_fails_and_what_follows_from_it_is_not_told():
    findings = replace(sound(H1, H2), lost={H2: "a\nBroken pipe"}, links={(H1, H2): "timed out"})
    assert only(findings)[:3] == ("failed", "connection", "h2")


def test_versions_must_be_equal_everywhere():
    verdict, check, host, text = only(changed(python="3.11.9"))
    assert (verdict, check, host) == ("failed", "Python", "all hosts")
    assert "h1 has 3.12, h2 has 3.11" in text
    assert bad(changed(python="3.12.99")) == []
    text = only(changed(packages={"tensorflow": "2.20.0", "tf_keras": "2.21.0"}))[3]
    assert "tensorflow is not the same everywhere: h1 has 2.21.0, h2 has 2.20.0" in text


def test_a_missing_package_is_one_row_with_its_host():
    verdict, check, host, text = only(changed(packages={"tensorflow": "2.21.0"}))
    assert (verdict, check, host) == ("failed", "packages", "h2")
    assert "no tf_keras for /usr/bin/python3" in text


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        ({"gpu_devices": 1}, "warning", "--gpus all"),
        ({"gpu_devices": 2, "gpus_hidden": 2}, "warning", "CUDA_VISIBLE_DEVICES hides the 2 GPUs"),
        ({**GPU, "driver": "470.82.01"}, "warning", "older than 525.60.13"),
        ({**GPU, "driver": "525.60.11"}, "warning", "older than 525.60.13"),
    ],
)
def test_gpus_that_tensorflow_will_not_see(values, verdict, words):
    findings = replace(sound(LOCAL), dialled={}, hellos={LOCAL: {**HELLO, **values}})
    found = only(findings)
    assert found[:2] == (verdict, "GPUs")
    assert words in found[3]


def test_gpus_that_are_seen():
    findings = replace(sound(LOCAL), dialled={}, hellos={LOCAL: {**HELLO, **GPU}})
    (row,) = [row for row in examine(findings) if row.check == "GPUs"]
    assert (row.verdict, row.text) == (Verdict.OK, "A100; driver 550.54.15")


def test_a_gpu_that_was_named_and_is_not_there():
    host = replace(H1, gpus=("0", "3"))
    findings = replace(sound(host), hellos={host: {**HELLO, **GPU}})
    assert only(findings)[:3] == ("failed", "GPUs", "h1")
    assert "there is no 3" in only(findings)[3]


def test_more_workers_than_gpus_do_not_fit_but_more_parameter_servers_do():
    hello = {**HELLO, **GPU}
    assert only(replace(sound(H1), hellos={H1: hello}, tasks={H1: 2}))[:2] == ("failed", "GPUs")
    server = replace(H1, role="ps")
    assert bad(replace(sound(server), hellos={server: hello}, tasks={server: 9})) == []


def test_workers_with_gpus_and_workers_without_make_no_job():
    verdict, check, host, text = only(changed(**GPU))
    assert (verdict, check, host) == ("failed", "GPUs", "all hosts")
    assert text.startswith("h1 shows no GPU")


def test_unequal_gpus_are_a_warning():
    findings = replace(sound(H1, H2), hellos={H1: {**HELLO, **GPU}, H2: {**HELLO, **GPU, "gpus": ["H100"]}})
    assert only(findings)[:3] == ("warning", "GPUs", "all hosts")


@pytest.mark.parametrize(
    ("values", "check"),
    [({"memory_free_bytes": 1.2e9}, "memory"), ({"cores": []}, "cores"), ({"disk_free_bytes": 4e8}, "disk")],
)
def test_too_little_of_something_is_a_warning(values, check):
    assert only(changed(**values))[:3] == ("warning", check, "h2")


def test_memory_is_needed_for_every_worker():
    assert bad(replace(sound(H1), tasks={H1: 4})) == []
    findings = replace(sound(H1), hellos={H1: {**HELLO, "cores": list(range(9))}}, tasks={H1: 9})
    assert "9 workers with MobileNetV2 may need 11.7 GB" in only(findings)[3]


@pytest.mark.parametrize(("behind_s", "words"), [(2.5, "2.5 s behind"), (-60.0, "60.0 s ahead of")])
def test_a_clock_that_is_wrong_is_a_warning(behind_s, words):
    found = only(replace(sound(H1, H2), behind_s={H1: 1.9, H2: behind_s}))
    assert found[:3] == ("warning", "clock", "h2")
    assert words in found[3]


def test_a_folder_that_is_not_there_is_a_warning_where_home_will_do():
    assert only(replace(sound(H1), folders={H1: TaskFolder("/work", "/root")}))[:2] == ("warning", "folder")
    assert only(replace(sound(H1), folders={H1: TaskFolder("/work")}))[:2] == ("failed", "folder")


def test_a_port_that_is_used_fails_by_its_number():
    findings = replace(sound(H1), ports={}, dialled={}, refused={H1: (5000, "Address already in use")})
    verdict, check, host, text = only(findings)
    assert (verdict, check, host) == ("failed", "ports", "h1")
    assert "port 5000 on h1 cannot be used" in text


def test_a_blocked_port_names_both_ends_and_the_cause():
    findings = sound(H1, H2)
    findings = replace(findings, dialled={**findings.dialled, (H1, H2, 5000): "timed out"})
    verdict, check, host, text = only(findings)
    assert (verdict, check, host) == ("failed", "reachability", "h2")
    assert text.startswith("h1 cannot reach h2 at 10.0.0.2:5000 (timed out) -> a firewall drops it")


def test_one_row_for_each_cause():
    hosts = tuple(Host(f"h{number}", f"10.0.0.{number}") for number in range(20))
    findings = sound(*hosts)
    dialled = {key: "" if key[0] == key[1] else "refused" for key in findings.dialled}
    rows = bad(replace(findings, dialled=dialled, links={}))
    assert len(rows) == 20
    assert "h1, h2, h3, h4, h5, h6, h7, h8 and 11 more cannot reach h0" in rows[0][3]


def test_several_ports_are_told_in_short():
    ports = {H1: (5000, 5001, 5002), H2: tuple(range(6000, 6040, 2))}
    dialled = {(one, other, port): "refused" for one, other in ((H2, H1), (H1, H2)) for port in ports[other]}
    texts = [text for *_, text in bad(replace(sound(H1, H2), ports=ports, dialled=dialled))]
    assert texts[0].startswith("h2 cannot reach h1 at 10.0.0.1, ports 5000-5002, (refused)")
    assert texts[1].startswith("h1 cannot reach h2 at 10.0.0.2, 20 ports, (refused)")


def test_a_slow_link_is_a_warning_with_what_it_means_for_a_training():
    found = only(replace(sound(H1, H2), links={(H1, H2): Link(0.0002, 11.7e6), (H2, H1): FAST}))
    assert found[:3] == ("warning", "link", "h1 -> h2")
    assert found[3].startswith("94 Mbit/s, 0.20 ms: the gradients of MobileNetV2 would take 1.2 s a step")


def test_a_long_way_is_a_warning_and_one_that_breaks_a_failure():
    links = {(H1, H2): Link(0.08, 1e9), (H2, H1): "timed out"}
    assert [row[:3] for row in bad(replace(sound(H1, H2), links=links))] == [
        ("warning", "link", "h1 -> h2"),
        ("failed", "link", "h2 -> h1"),
    ]


def test_tf_config_in_the_environment_keeps_a_job_from_starting():
    assert only(replace(sound(LOCAL), dialled={}, tf_config=True))[:2] == ("failed", "environment")


def test_all_pairs_dial_each_other_and_of_very_many_the_ring_and_the_first():
    hosts = [Host(f"h{number}") for number in range(65)]
    assert peers(hosts[2], hosts[:64]) == hosts[:64]
    assert peers(hosts[64], hosts) == [hosts[64], hosts[0]]
    assert peers(hosts[3], hosts) == [hosts[3], hosts[4], hosts[0]]
