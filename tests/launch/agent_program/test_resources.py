"""What the agent reports of the host's cores and memory: fake /proc and cgroup trees, and real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.launch.agent_program import description

V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


@pytest.fixture
def host(tmp_path):
    """A function that writes a host's files: its /proc/self and those of its cgroups."""

    def write(cgroup, mountinfo, **files):
        for path, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, **files}.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return str(tmp_path)

    return write


def v2(path, **values):
    return {f"sys/fs/cgroup{path}/{name.replace('_', '.', 1)}": f"{value}\n" for name, value in values.items()}


def test_the_limits_of_a_service_and_of_its_ancestors_count(host):
    stat = "anon 5\nfile 9\nkernel 3\ninactive_file 300\nactive_file 2"
    root = host(
        "0::/a.slice/b.service\n",
        V2,
        **v2("/a.slice/b.service", memory_max=2000, memory_current=700, memory_stat=stat, cpu_max="max 100000"),
        **v2("/a.slice", memory_max="max", memory_current=900, memory_stat="inactive_file 0", cpu_max="150000 100000"),
    )
    assert description.cgroup_memory(root) == [(2000, 400)]
    assert description.cgroup_cores(root) == 1.5


def test_a_container_sees_only_its_own_cgroup(host):
    limits = v2("", memory_max=1000, memory_current=100, cpu_max="200000 100000")
    for path, top in (("/", "/"), ("/docker/abc", "/docker/abc"), ("/../../other", "/")):
        root = host(f"0::{path}\n", V2.replace(" / /sys", f" {top} /sys"), **limits)
        assert description.cgroup_memory(root) == [(1000, 100)]
        assert description.cgroup_cores(root) == 2.0


def test_cgroups_of_version_1(host):
    memory, cpu = "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"
    root = host(
        "5:memory:/slurm/job_7\n4:cpu,cpuacct:/slurm/job_7\n1:name=systemd:/x\n0::/x\n",
        V1.format(top="/"),
        **{
            f"{memory}/slurm/job_7/memory.limit_in_bytes": "5000\n",
            f"{memory}/slurm/job_7/memory.usage_in_bytes": "1200\n",
            f"{memory}/slurm/job_7/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
            f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{memory}/memory.usage_in_bytes": "99\n",
            f"{cpu}/slurm/job_7/cpu.cfs_quota_us": "250000\n",
            f"{cpu}/slurm/job_7/cpu.cfs_period_us": "100000\n",
            f"{cpu}/cpu.cfs_quota_us": "-1\n",
            f"{cpu}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert description.cgroup_memory(root)[0] == (5000, 1000)
    assert description.cgroup_cores(root) == 2.5


@pytest.mark.parametrize(("cgroup", "mountinfo"), [("", ""), ("0::/\n", ""), ("0::/\n", V2), ("1:cpu:/\n", V2)])
def test_without_cgroups_there_is_no_limit(cgroup, mountinfo, host):
    root = host(cgroup, mountinfo)
    assert description.cgroup_memory(root) == []
    assert description.cgroup_cores(root) is None


LIMITED = """
import json, sys
from tfdist.launch.agent_program.description import describe
for folder in sys.argv[1:]:
    open(folder + "/cgroup.procs", "w").write("0")
description = describe()
print(json.dumps([description[key] for key in ("memory_bytes", "memory_free_bytes", "core_limit", "cores")]))
"""


@pytest.fixture
def new_cgroup():
    """A function that makes a cgroup below this process's; skips the test where that is not allowed."""
    made = []

    def make(controller, **values):
        folders = description.cgroup_folders(controller)
        folder = Path(folders[0] if folders else "/nowhere") / f"tfdist-test-{os.getpid()}-{controller}"
        try:
            folder.mkdir()
            made.append(folder)
            for name, value in values.items():
                (folder / f"{controller}.{name}").write_text(str(value))
        except OSError as error:
            pytest.skip(f"cgroups of version 1 cannot be made here: {error}")
        return str(folder)

    yield make
    for folder in made:
        folder.rmdir()


def test_real_cgroups_limit_memory_and_cores(new_cgroup):
    memory = new_cgroup("memory", limit_in_bytes=600_000_000)
    cpu = new_cgroup("cpu", cfs_period_us=100_000, cfs_quota_us=70_000)
    done = subprocess.run([sys.executable, "-c", LIMITED, memory, cpu], capture_output=True, text=True, check=True)
    memory_bytes, free, core_limit, cores = eval(done.stdout)
    assert 599_000_000 < memory_bytes <= 600_000_000
    assert 0 < free < memory_bytes
    assert (core_limit, len(cores)) == (0.7, 1)


@pytest.mark.parametrize(
    ("limit", "cores"), [(None, [2, 0, 1]), (9.0, [2, 0, 1]), (2.0, [2, 0]), (1.5, [2, 0]), (0.2, [2])]
)
def test_the_least_used_cores_come_first_up_to_the_limit(limit, cores):
    assert description.usable_cores({0: 0.5, 1: 2.0, 2: 0.0}, limit) == cores


def test_pinned_processes_are_counted_on_their_cores():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core")
    before = description.pinned_processes(allowed)
    core = max(allowed)
    sleeper = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        after = description.pinned_processes(allowed)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert after[core] - before[core] >= 1.0
    assert description.pinned_processes({core}).keys() == {core}


def test_the_share_of_busy_cores_needs_running_threads_and_an_average(monkeypatch):
    cores = os.cpu_count()
    for text, busy in (
        ("3.00 1 1 5/90 7", 3),
        ("3.00 1 1 1/90 7", 0),
        ("0.25 1 1 9/90 7", 0.25),
        ("9.9 1 1 3/9 7", 2),
        ("", 0),
    ):
        monkeypatch.setattr(description, "read_text", lambda path, text=text: text if path == "/proc/loadavg" else "")
        assert description.busy_share() * cores == pytest.approx(min(busy, cores))
