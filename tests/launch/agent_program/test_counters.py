import os
import subprocess
import sys

import pytest

from tests.waiting import wait_until
from tfdist.launch.agent_program import counters
from tfdist.launch.agent_program.counters import throttled_s


def test_counters_of_a_process_that_computes():
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        wait_until(lambda: counters.session_cpu_s().get(process.pid, 0) > 0.3)
        used = counters.session_cpu_s()
        own, stranger = (counters.counters(process.pid, pids, used) for pids in ([process.pid], []))
        process.kill()
    assert own["cores"] == 1
    assert 0 < own["clock_share"] <= 1
    assert 0 <= own["disk_free_share"] <= 1
    assert stranger["other_busy_s"] - own["other_busy_s"] > 0.2
    assert counters.counters(process.pid, [process.pid], {}) == {}


@pytest.mark.parametrize(
    ("cgroup", "expected"), [("0::/a/b\n", 1.5 + 0.5), ("4:memory:/a/b\n3:cpu,cpuacct:/x\n0::/a/b\n", 0.25), ("", 0.0)]
)
def test_throttled_time_is_that_of_all_groups_above_a_process(cgroup, expected, tmp_path):
    for file, text in {
        "proc/7/cgroup": cgroup,
        "proc/self/cgroup": "0::/a\n",
        "proc/self/mountinfo": "32 31 0:29 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n41 31 0:38 / /v2 rw - cgroup2 none rw\n",
        "v2/a/b/cpu.stat": "usage_usec 5\nthrottled_usec 1500000\n",
        "v2/a/cpu.stat": "throttled_usec 500000\n",
        "cpu/x/cpu.stat": "nr_periods 3\nthrottled_time 250000000\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert throttled_s(7, str(tmp_path)) == expected
