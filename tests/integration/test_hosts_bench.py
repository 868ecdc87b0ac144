"""`tfdist bench --hosts` with two real hosts."""

import json

import pytest

SUITE = """
name = "two"
preset = "smoke"
rounds = 1
[defaults]
model = "tiny"
dataset = "synthetic"
evaluate = false
[[arms]]
name = "one"
strategy = "one-device"
[[arms]]
name = "two hosts"
strategy = "multiworker"
workers = 2
hosts = 2
[[arms]]
name = "three hosts"
strategy = "multiworker"
workers = 3
hosts = 3
"""


@pytest.mark.thorough
def test_a_bench_over_two_hosts_reports_the_rate_of_their_link(launcher, net):
    suite = launcher.script(SUITE, "two.toml")
    with net.hosts[1].limit_mbit(100):
        arguments = ("--hosts", "h1,h2", "--suite", suite, "--out", "bench", "--json")
        done = launcher.run(*arguments, command="bench", timeout_s=240)
    assert done.code == 0, done.err[-4000:]
    summary = json.loads(done.out.splitlines()[-1])
    rows = {row["arm"]: row for row in summary["rows"]}
    assert [rows[name]["hosts"] for name in ("one", "two hosts")] == [1, 2]
    assert [rows[name]["kind"] for name in ("one", "two hosts")] == ["single-card", "multi-node"]
    assert rows["one"]["link_mbit_per_s"] is None
    assert 30 < rows["two hosts"]["link_mbit_per_s"] < 105
    assert rows["three hosts"]["status"] == "refused"
    assert "needs 3 hosts, 2 hosts are available" in rows["three hosts"]["reason"]
    assert " Mbit/s" in (launcher.folder / "bench" / "report.md").read_text()
