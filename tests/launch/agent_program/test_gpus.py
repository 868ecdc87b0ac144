import sys
from pathlib import Path

import pytest

from tfdist.launch.agent_program import gpus
from tfdist.launch.agent_program.description import describe


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """No CUDA library anywhere."""
    monkeypatch.setattr(gpus, "LINKER_CACHE", str(tmp_path / "ld.so.cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), "/no/such.zip"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return tmp_path


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_without_cuda_all_libraries_are_missing(nothing):
    assert gpus.missing_cuda_libraries() == list(gpus.CUDA_LIBRARIES)


def test_the_wheels_beside_tensorflow_have_the_libraries(nothing):
    for library, package in gpus.CUDA_LIBRARIES.items():
        fill(nothing / "site-packages" / "nvidia" / package / "lib", library)
    assert gpus.missing_cuda_libraries() == []


@pytest.mark.parametrize("place", ["cache", "LD_LIBRARY_PATH", "prefix"])
def test_libraries_of_the_system_or_of_conda_are_found(place, nothing, monkeypatch):
    others = [name for name in gpus.CUDA_LIBRARIES if name != "libcudnn.so.9"]
    if place == "cache":
        (nothing / "ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1" + b"\0".join(map(str.encode, others)))
    else:
        folder = nothing / "prefix" / "lib" if place == "prefix" else nothing / "cuda"
        fill(folder, *others)
        monkeypatch.setenv("LD_LIBRARY_PATH", f":{nothing / 'cuda'}")
    assert gpus.missing_cuda_libraries() == ["libcudnn.so.9"]


def test_tasks_on_a_host_with_gpus_find_the_wheel_of_cusolver(nothing, monkeypatch):
    folder = nothing / "site-packages" / "nvidia" / "cusolver" / "lib"
    fill(folder, "libcusolver.so.11")
    monkeypatch.setattr(gpus, "GPU_DEVICES", str(nothing / "nvidia[0-9]*"))
    assert gpus.with_cusolver({"A": "1"}) == {"A": "1"}
    fill(nothing, "nvidia0")
    found = gpus.with_cusolver({"A": "1"})
    assert found == {"A": "1", "LD_LIBRARY_PATH": str(folder)}
    assert gpus.with_cusolver(found) == found
    assert gpus.with_cusolver({"LD_LIBRARY_PATH": "/opt/lib:"})["LD_LIBRARY_PATH"] == f"/opt/lib::{folder}"
    monkeypatch.setattr(sys, "path", [])
    assert gpus.with_cusolver({}) == {}


def test_only_tensorflow_2_22_looks_for_cusolver_beside_itself():
    from importlib.metadata import distribution

    files = [Path(str(file.locate())) for file in distribution("tensorflow").files or [] if "framework.so" in file.name]
    (text,) = (path.read_bytes() for path in files)
    assert b"$ORIGIN/../nvidia/cublas/lib" in text
    newer = distribution("tensorflow").version.startswith("2.22.")  # with_cusolver is for 2.21
    assert (b"nvidia/cusolver/lib" in text) is newer


def test_the_libraries_are_those_of_tensorflows_extra():
    from importlib.metadata import requires

    extra = [text for text in requires("tensorflow") or [] if "and-cuda" in text]
    for package in gpus.CUDA_LIBRARIES.values():
        assert any(text.startswith(f"nvidia-{package.replace('_', '-')}-cu12") for text in extra), package


GPUS = gpus.list_gpus("GPU 0: A100 (UUID: GPU-aa11)\nGPU 1: H100 (UUID: GPU-bb22)\n")
MIG = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e)
"""
"""The form of `nvidia-smi -L`, as NVIDIA's MIG user guide shows it."""
FIRST, SECOND = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"


def shown(devices, visible):
    return [(entry, gpu.name) for entry, gpu in gpus.visible_gpus(devices, visible)]


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
    devices = gpus.list_gpus(MIG)
    assert shown(devices, None) == [(FIRST, names[0]), (SECOND, names[1]), ("1", "NVIDIA A100-SXM4-40GB")]
    assert shown(devices, SECOND) == [(SECOND, names[1])]
    assert shown(devices, "0") == [("0", names[0])]  # CUDA takes the first instance
    assert shown(devices, "GPU-5d5b") == [("GPU-5d5b", names[0])]


def test_a_host_without_a_driver_has_no_gpu():
    assert gpus.list_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == []
    assert gpus.visible_gpus([], "0,1") == []
    assert gpus.visible_gpus([], "MIG-1") == []


SMI = f"""#!/bin/sh
case $1 in
--query-gpu=*) cat <<EOF
GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, 40960, 00000000:3B:00.0
GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e, 40960, 00000000:AF:00.0
EOF
;;
topo) printf '\\t\\033[4mGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\033[0m\\nGPU0\\t X \\tNV12\\t0-3\\t0\\nGPU1\\tNV12\\t X \\t4-7\\t1\\n\\nLegend:\\n\\n  X    = Self\\n' ;;
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
def sysfs(monkeypatch, tmp_path):
    """Two GPUs on two NUMA nodes; cores 0 and 4, 1 and 5, ... are hardware threads of one core."""
    for bus_id, cores in (("0000:3b:00.0", "0-1,4-5"), ("0000:af:00.0", "2-3,6-7")):
        (tmp_path / bus_id).mkdir()
        (tmp_path / bus_id / "local_cpulist").write_text(f"{cores}\n")
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    monkeypatch.setattr(gpus, "PCI_DEVICES", str(tmp_path))
    monkeypatch.setattr(gpus, "CPUS", str(tmp_path))


def test_memory_near_cores_and_links_of_gpus_are_described(nvidia_smi, sysfs, monkeypatch):
    nvidia_smi(SMI)
    description = describe()
    assert description["gpu_memory"] == [0, 0, 40960 << 20]  # nvidia-smi gives the memory of whole GPUs
    assert description["gpu_cores"] == [[0, 4, 1, 5], [0, 4, 1, 5], [2, 6, 3, 7]]
    assert description["gpu_topology"] == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity", "GPU0\t X \tNV12\t0-3\t0", "GPU1\tNV12\t X \t4-7\t1",
    ]  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    description = describe()
    assert (description["gpu_cores"], description["gpu_topology"]) == ([[2, 6, 3, 7]], [])


def test_cores_near_an_unknown_device_are_unknown():
    assert gpus.near_cores("00000000:FF:1F.7") == []
    assert gpus.core_list("0-2,8\n") == [0, 1, 2, 8]
    assert gpus.core_list("\n") == []


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """A function that puts a script on the PATH as nvidia-smi, beside two device files."""

    def install(script):
        for index in range(2):
            (tmp_path / f"nvidia{index}").touch()
        monkeypatch.setattr(gpus, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvidia-smi").write_text(script)
        (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return install


def test_gpus_are_described_with_the_processes_that_use_them(nvidia_smi, monkeypatch):
    nvidia_smi(SMI)
    description = describe()
    assert description["gpu_ids"] == [FIRST, SECOND, "1"]
    assert description["gpu_uuids"] == [FIRST, SECOND, "GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e"]
    assert description["gpu_processes"] == [
        [SECOND, "4711", "/opt/a, b/python3", "10240 MiB"],
        ["GPU-8e9a0ac8-0d22-4b17-a3a9-1d3b1b1f3d2e", "4712", "[Not Found]", "[N/A]"],
    ]
    assert (description["gpus_hidden"], description["gpu_devices"]) == (0, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    description = describe()
    assert (description["gpu_ids"], description["gpu_processes"], description["gpus_hidden"]) == (["0"], [], 2)


@pytest.mark.parametrize(("visible", "hidden"), [(None, 0), ("0", 0), ("-1", 2), ("", 2), ("NoDevFiles", 2)])
def test_gpus_without_nvidia_smi_are_hidden_only_on_purpose(visible, hidden, nvidia_smi, monkeypatch):
    nvidia_smi("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'\nexit 255\n")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    description = describe()
    assert (description["gpus"], description["gpus_hidden"], description["gpu_devices"]) == ([], hidden, 2)


def test_hidden_gpus_need_no_nvidia_smi(nvidia_smi, monkeypatch, tmp_path):
    nvidia_smi(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    describe()
    assert not (tmp_path / "started").exists()
