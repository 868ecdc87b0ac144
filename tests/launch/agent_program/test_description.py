import sys
from importlib.metadata import version

import pytest

from tfdist.launch.agent_program.description import KernelLog, describe, oom_kills


@pytest.mark.parametrize(
    ("group", "mount", "name"),
    [
        ("4:cpu,memory:/box/job", "/ /mem rw - cgroup cgroup rw,cpu,memory", "memory.oom_control"),
        ("0::/box/job", "/ /mem rw - cgroup2 cgroup2 rw,nsdelegate", "memory.events"),
    ],
    ids=["v1", "v2"],
)
def test_kills_for_lack_of_memory_are_counted_in_the_cgroup(tmp_path, group, mount, name):
    assert oom_kills(str(tmp_path)) == 0
    for path, text in (
        ("proc/self/cgroup", f"{group}\n"),
        ("proc/self/mountinfo", f"36 35 0:30 {mount}\n"),
        (f"mem/box/job/{name}", "low 0\noom 3\noom_kill 2\noom_group_kill 5\n"),
        (f"mem/box/{name}", "oom_kill 9\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert oom_kills(str(tmp_path)) == 2


def test_the_kernel_log_says_which_process_was_killed(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;Out of memory: Killed process 7 (python3) in an earlier job\n")
    log = KernelLog(str(path))
    with path.open("a") as file:
        file.write("6,2,9,-;eth0: link up\n")
        file.write("6,3,9,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=71,uid=0\n SUBSYSTEM=x\n")
        file.write("3,4,9,-;Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB\n")
        file.write("3,5,9,-;Memory cgroup out of memory: Killed process 8 (ruby) total-vm:9kB\n")
    assert log.find(71, any_process=False) == "Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB"
    assert log.find(7, any_process=False) == ""
    assert log.find(7, any_process=True) == "Memory cgroup out of memory: Killed process 8 (ruby) total-vm:9kB"


def test_a_kernel_log_that_may_not_be_read_says_nothing(tmp_path):
    assert KernelLog(str(tmp_path / "missing")).find(7, any_process=True) == ""


def test_the_description_has_versions_cores_and_memory():
    description = describe()
    assert description["packages"]["tensorflow"] == version("tensorflow")
    assert description["cores"]
    assert description["memory_bytes"] > 1e8


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("tensorflow_cpu-2.21.0.dist-info", "tensorflow"),
        ("tf_nightly-2.22.0.dev1.dist-info", "tensorflow"),
        ("intel_tensorflow-2.15.0.dist-info", "tensorflow"),
        ("tensorflow_rocm-2.18.1.dist-info", "tensorflow"),
        ("tensorflow.macos-2.16.2.dist-info", "tensorflow"),
        ("TensorFlow-2.21.0.dist-info", "tensorflow"),
        ("tf_keras_nightly-2.22.0.dist-info", "tf_keras"),
        ("keras_nightly-3.16.0.dev2026102704.dist-info", "keras"),
    ],
)
def test_other_distributions_of_a_package_count(file, package, monkeypatch, tmp_path):
    (tmp_path / file).mkdir()
    (tmp_path / "tensorflow_datasets-4.9.10.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert describe()["packages"] == {package: file.removesuffix(".dist-info").partition("-")[2]}


def test_an_unreadable_folder_on_the_path_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", ["/no/such/folder", str(tmp_path / "a.zip"), *sys.path])
    assert describe()["packages"]["tensorflow"] == version("tensorflow")
