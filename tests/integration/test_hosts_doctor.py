"""`tfdist doctor` with two real hosts."""

import json

import pytest

from .launcher import make_python

PORT = 23456


def run_doctor(launcher, *arguments):
    """The JSON of a doctor that ends in time and without a traceback."""
    done = launcher.run(*arguments, "--json", command="doctor")
    assert "Traceback" not in done.err
    assert done.seconds < 40
    report = json.loads(done.out)
    assert done.code == (0 if report["can_start"] else 69)
    return report


def row(report, check, host):
    """The one row of this check for this host."""
    (found,) = [row for row in report["rows"] if row["check"] == check and host in row["host"].split(", ")]
    return found


def mbit(report):
    """Mbit/s of each link, by its two hosts."""
    return {(link["from"], link["to"]): link["bytes_per_s"] * 8 / 1e6 for link in report["links"]}


@pytest.mark.parametrize("rate", [100, 1000])
def test_the_rate_of_a_link_is_measured(rate, launcher, net):
    with net.hosts[1].limit_mbit(rate):
        report = run_doctor(launcher, "--hosts", "h1,h2")
    assert report["can_start"]
    rates = mbit(report)
    assert rates.keys() == {("h1", "h2"), ("h2", "h1")}
    assert all(0.12 * rate < measured < 1.05 * rate for measured in rates.values()), rates  # others use the cores too
    verdicts = ["ok" if measured >= 500 else "warning" for measured in rates.values()]
    assert [row["verdict"] for row in report["rows"] if row["check"] == "link"] == verdicts


def test_every_problem_is_a_row_with_a_fix(launcher, net, tmp_path):
    python = make_python(tmp_path / "empty", ["*"])
    hostfile = launcher.script(f"h1\nh2 python={python}\ngone\nunknown slots=1\n", "hosts.txt")
    with net.hosts[1].block_port(PORT, source=net.hosts[0]):
        report = run_doctor(launcher, "--hostfile", hostfile, "--port", str(PORT))
    assert not report["can_start"]
    for check, host, words in (
        ("connection", "gone", "does not answer"),
        ("connection", "unknown", "the host key is unknown"),
        ("packages", "h2", "tensorflow"),
        ("reachability", "h2", f"h1 cannot reach h2 at {net.hosts[1].address}:{PORT} (timed out)"),
    ):
        found = row(report, check, host)
        assert found["verdict"] == "failed"
        assert words in found["text"]
        assert found["fix"]
    assert row(report, "connection", "h1")["verdict"] == "ok"
