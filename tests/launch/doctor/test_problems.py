"""Problems of hosts, without any host."""

import pytest

from tfdist.launch.agents.messages import Prepared
from tfdist.launch.doctor.problems import (
    clock_problem,
    folder_problem,
    missing_packages,
    port_problem,
    script_problems,
    unreachable,
    version_problems,
)
from tfdist.launch.hosts.host import Host

H1, H2, H3 = (Host(f"h{number}", f"10.0.0.{number}") for number in (1, 2, 3))
BOTH = {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}


def hello(python="3.11.7", **packages):
    return {"python": python, "packages": packages, "executable": "/usr/bin/python3"}


def versions(one, other, ignore_missing=False):
    problems = version_problems({H1: one, H2: other}, ignore_missing)
    return {name: str(problem) for name, problem in problems.items()}


def test_equal_versions_are_no_problem():
    assert versions(hello("3.11.2", **BOTH), hello("3.11.9", **BOTH)) == {}
    assert versions(hello(), hello()) == {}  # the user's own program may not need TensorFlow


def test_unequal_versions_are_named_with_their_hosts():
    assert (
        "Python differs between hosts: h1 has 3.11, h2 has 3.10"
        in versions(hello(**BOTH), hello("3.10.1", **BOTH))["Python"]
    )
    (sentence,) = versions(hello(**BOTH), hello(**BOTH | {"tf_keras": "2.20.1"})).values()
    assert "tf_keras differs between hosts: h1 has 2.21.0, h2 has 2.20.1" in sentence
    assert "--python" in sentence


def test_a_package_that_one_host_lacks_is_a_difference():
    one, other = hello(**BOTH), hello(tf_keras="2.21.0")
    (sentence,) = versions(one, other).values()
    assert "tensorflow differs between hosts: h1 has 2.21.0, h2 has none" in sentence
    assert versions(one, other, ignore_missing=True) == {}


def test_missing_packages_are_named_with_the_python_that_lacks_them():
    assert missing_packages(H1, hello(**BOTH)) is None
    sentence = str(missing_packages(H2, hello()))
    assert sentence.startswith("h2: /usr/bin/python3 has no tensorflow and no tf_keras; install")
    assert "--python" in sentence


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("refused", "nothing listens at that address"),
        ("timed out", "a firewall drops the packets: open the port"),
        ("not resolved", "set addr="),
        ("something else answers there", "another machine"),
        ("No route to host", "(no route to host); a firewall rejects the connection or there is no route"),
    ],
)
def test_an_unreachable_port_is_named_with_both_ends_and_the_likely_cause(reason, words):
    sentence = str(unreachable("h1", "worker-1 on h2", "10.0.0.2:5001", reason))
    assert sentence.startswith("h1 cannot reach worker-1 on h2 at 10.0.0.2:5001 (")
    assert words in sentence


def test_a_port_is_chosen_where_it_was_set():
    sentence = str(port_problem(H1, 5000, "Address already in use"))
    assert (
        sentence
        == "h1: port 5000 cannot be used (address already in use); choose another --port, or omit it for free ports"
    )
    assert "choose another port= in the hostfile" in str(port_problem(Host("h1", port=5000), 5000, ""))


@pytest.mark.parametrize(
    ("behind_s", "words"),
    [(0.0, None), (1.9, None), (-1.9, None), (5.04, "5.0 s behind this"), (-60.0, "60.0 s ahead of this")],
)
def test_a_clock_that_is_off_is_a_problem(behind_s, words):
    problem = clock_problem(H1, behind_s)
    assert (problem is None) == (words is None)
    if words is not None:
        assert words in str(problem)
        assert "NTP" in str(problem)


def test_a_missing_folder_is_a_problem_also_with_a_home_folder():
    assert folder_problem(H1, Prepared("/work", "/work")) is None
    assert "/work does not exist, so tasks run in /root; create it" in str(
        folder_problem(H1, Prepared("/work", "/root"))
    )
    assert "/work does not exist; create it" in str(folder_problem(H1, Prepared("/work", "")))
    broken = str(folder_problem(H1, Prepared("/a\ntfdist: ok", "/b\n[worker-0] x")))
    assert "/a tfdist: ok does not exist, so tasks run in /b [worker-0] x;" in broken


def test_hosts_that_lack_the_program_or_have_another_one_are_named():
    one, same, none, other = (Prepared("/a", "/a", digest) for digest in ("1", "1", "", "2"))
    fix = "bring this folder to all hosts with --copy, or use one that they share (--chdir)"
    assert list(script_problems("t.py", {H1: one, H2: same})) == []
    assert list(map(str, script_problems("t.py", {H1: none, H2: one, H3: other}))) == [
        f"h1: t.py is missing in /a; {fix}",
        f"h3: t.py differs from that on h2; {fix}",
    ]
    assert [problem.host for problem in script_problems("t.py", {H1: none, H2: none})] == ["h1", "h2"]
