import os
import subprocess
import sys

from tfdist.launch.agent_program import counters
from tfdist.launch.agent_program.counters import throttled_s


def test_counters_of_a_process_that_computes():
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stdout.readline()
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        own = counters.counters(process.pid, [process.pid])
        stranger = counters.counters(process.pid, [])
        process.kill()
    assert own["cores"] == 1
    assert 0 < own["clock_share"] <= 1
    assert 0 <= own["disk_free_share"] <= 1
    assert own["sent"] >= 0
    assert stranger["other_busy_s"] >= own["other_busy_s"] >= 0
    assert counters.counters(process.pid, [process.pid]) == {}


def test_throttled_time_is_that_of_all_groups_above_a_process(tmp_path, monkeypatch):
    for folder, text in {
        "unified/a/b": "usage_usec 5\nthrottled_usec 1500000\n",
        "unified/a": "throttled_usec 500000\n",
        "cpu,cpuacct/x": "nr_periods 3\nthrottled_time 250000000\n",
        "memory/a/b": "throttled_usec 9000000\n",
    }.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "cpu.stat").write_text(text, encoding="utf-8")
    of_process = "0::/a/b\n4:memory:/a/b\n3:cpu,cpuacct:/x\n"
    real = counters.read_text
    monkeypatch.setattr(counters, "read_text", lambda path: of_process if path.startswith("/proc/") else real(path))
    assert throttled_s(1, str(tmp_path)) == 1.5 + 0.5 + 0.25
