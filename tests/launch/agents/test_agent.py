import socket
import sys

import pytest

from tfdist.launch.agents import agent

GPUS = agent.list_gpus("GPU 0: A100 (UUID: GPU-aa11)\nGPU 1: H100 (UUID: GPU-bb22)\n")
MIG = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e)
"""
"""The form of `nvidia-smi -L`, as NVIDIA's MIG user guide shows it."""
FIRST, SECOND = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"


def shown(gpus, visible):
    return [(entry, gpu.name) for entry, gpu in agent.visible_gpus(gpus, visible)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [("0", "A100"), ("1", "H100")]),
        ("1", [("1", "H100")]),
        ("1,0", [("1", "H100"), ("0", "A100")]),
        ("GPU-bb", [("GPU-bb", "H100")]),
        ("0,7,1", [("0", "A100")]),
        ("MIG-1234", []),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_selects_gpus_as_in_cuda(visible, expected):
    assert shown(GPUS, visible) == expected


def test_mig_instances_replace_the_gpu_that_they_divide():
    names = [f"NVIDIA A100-SXM4-40GB MIG {profile}" for profile in ("3g.20gb", "1c.3g.20gb")]
    gpus = agent.list_gpus(MIG)
    assert shown(gpus, None) == [(FIRST, names[0]), (SECOND, names[1]), ("1", "NVIDIA A100-SXM4-40GB")]
    assert shown(gpus, SECOND) == [(SECOND, names[1])]
    assert shown(gpus, "0") == [("0", names[0])]  # CUDA takes the first instance
    assert shown(gpus, "GPU-5d5b") == [("GPU-5d5b", names[0])]


def test_a_host_without_a_driver_has_no_gpu():
    assert agent.list_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == []
    assert agent.visible_gpus([], "0,1") == []
    assert agent.visible_gpus([], "MIG-1") == []


SMI = f"""#!/bin/sh
case $1 in
-L) cat <<EOF
{MIG}EOF
;;
--query-compute-apps=*) cat <<EOF
{SECOND}, 4711, /opt/a, b/python3, 10240 MiB
GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e, 4712, [Not Found], [N/A]
EOF
;;
esac
"""


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """A function that puts a script on the PATH as nvidia-smi, beside two device files."""

    def install(script):
        for index in range(2):
            (tmp_path / f"nvidia{index}").touch()
        monkeypatch.setattr(agent, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvidia-smi").write_text(script)
        (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return install


def test_gpus_are_described_with_the_processes_that_use_them(nvidia_smi, monkeypatch):
    nvidia_smi(SMI)
    description = agent.describe()
    assert description["gpu_ids"] == [FIRST, SECOND, "1"]
    assert description["gpu_uuids"] == [FIRST, SECOND, "GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e"]
    assert description["gpu_processes"] == [
        [SECOND, "4711", "/opt/a, b/python3", "10240 MiB"],
        ["GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e", "4712", "[Not Found]", "[N/A]"],
    ]
    assert (description["gpus_hidden"], description["gpu_devices"]) == (0, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    description = agent.describe()
    assert (description["gpu_ids"], description["gpu_processes"], description["gpus_hidden"]) == (["0"], [], 2)


@pytest.mark.parametrize(("visible", "hidden"), [(None, 0), ("0", 0), ("-1", 2), ("", 2), ("NoDevFiles", 2)])
def test_gpus_without_nvidia_smi_are_hidden_only_on_purpose(visible, hidden, nvidia_smi, monkeypatch):
    nvidia_smi("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'\nexit 255\n")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    description = agent.describe()
    assert (description["gpus"], description["gpus_hidden"], description["gpu_devices"]) == ([], hidden, 2)


def test_hidden_gpus_need_no_nvidia_smi(nvidia_smi, monkeypatch, tmp_path):
    nvidia_smi(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    agent.describe()
    assert not (tmp_path / "started").exists()


def test_the_description_has_versions_cores_and_memory():
    description = agent.describe()
    assert description["packages"]["tensorflow"].startswith("2.21")
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
    ],
)
def test_other_distributions_of_a_package_count(file, package, monkeypatch, tmp_path):
    (tmp_path / file).mkdir()
    (tmp_path / "tensorflow_datasets-4.9.10.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert agent.describe()["packages"] == {package: file.removesuffix(".dist-info").partition("-")[2]}


def test_tmpdir_is_used_if_it_is_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert agent.temporary_root() == str(tmp_path)
    for wrong in ("", "/no/such/folder"):
        monkeypatch.setenv("TMPDIR", wrong)
        assert agent.temporary_root() == "/tmp"


def test_an_unreadable_folder_on_the_path_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", ["/no/such/folder", str(tmp_path / "a.zip"), *sys.path])
    assert agent.describe()["packages"]["tensorflow"].startswith("2.21")


@pytest.mark.parametrize(("levels", "deeper"), [(3, True), (4, False), (9, False)])
def test_nesting_of_an_event_is_limited(levels, deeper):
    assert agent.nests_deeper({"a": [{"b": [1, "text", {}]}]}, levels) is deeper


def test_a_command_that_times_out_has_no_output(monkeypatch):
    monkeypatch.setattr(agent, "COMMAND_TIMEOUT_S", 0.1)
    assert agent.output_of(["sleep", "60"]) == ""
    assert agent.output_of(["echo", "x"]) == "x\n"


def test_a_command_that_cannot_be_run_has_no_output():
    assert agent.output_of(["no-such-program"]) == ""


@pytest.mark.parametrize(
    ("text", "length"),
    [("", 0), ("a", 1), ("é", 2), ("a█", 4), ("🙂", 4), ("a" * 5, 5)],
)
def test_whole_characters_are_not_cut(text, length):
    assert agent.end_of_characters(text.encode()) == length


@pytest.mark.parametrize("character", ["é", "█", "🙂"])
def test_an_incomplete_character_at_the_end_is_left_for_later(character):
    for cut in range(1, len(character.encode())):
        assert agent.end_of_characters(b"ab" + character.encode()[:cut]) == 2


@pytest.mark.parametrize("text", [b"a\xff", b"a\x96\x96\x96\x96", b"\x96", b"a\xc3\xa9\x96"])
def test_bytes_that_are_not_utf_8_are_not_left_for_later(text):
    assert agent.end_of_characters(text) == len(text)


def test_listening_ports_include_servers_and_no_reserved_sockets():
    with socket.create_server(("127.0.0.1", 0)) as server, agent.reserve(0) as reserved:
        ports = agent.listening_ports()
        assert server.getsockname()[1] in ports
        assert reserved.getsockname()[1] not in ports


# --- out of memory


@pytest.mark.parametrize(
    ("group", "mount", "name"),
    [
        ("4:cpu,memory:/box/job", "/ /mem rw - cgroup cgroup rw,cpu,memory", "memory.oom_control"),
        ("0::/box/job", "/ /mem rw - cgroup2 cgroup2 rw,nsdelegate", "memory.events"),
    ],
    ids=["v1", "v2"],
)
def test_kills_for_lack_of_memory_are_counted_in_the_cgroup(tmp_path, group, mount, name):
    assert agent.oom_kills(str(tmp_path)) == 0
    for path, text in (
        ("proc/self/cgroup", f"{group}\n"),
        ("proc/self/mountinfo", f"36 35 0:30 {mount}\n"),
        (f"mem/box/job/{name}", "low 0\noom 3\noom_kill 2\noom_group_kill 5\n"),
        (f"mem/box/{name}", "oom_kill 9\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert agent.oom_kills(str(tmp_path)) == 2


def test_the_kernel_log_says_which_process_was_killed(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;Out of memory: Killed process 7 (python3) in an earlier job\n")
    log = agent.KernelLog(str(path))
    with path.open("a") as file:
        file.write("6,2,9,-;eth0: link up\n")
        file.write("6,3,9,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=71,uid=0\n SUBSYSTEM=x\n")
        file.write("3,4,9,-;Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB\n")
        file.write("3,5,9,-;Memory cgroup out of memory: Killed process 8 (ruby) total-vm:9kB\n")
    assert log.find(71, any_process=False) == "Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB"
    assert log.find(7, any_process=False) == ""
    assert log.find(7, any_process=True) == "Memory cgroup out of memory: Killed process 8 (ruby) total-vm:9kB"


def test_a_kernel_log_that_may_not_be_read_says_nothing(tmp_path):
    assert agent.KernelLog(str(tmp_path / "missing")).find(7, any_process=True) == ""
