import sys
from pathlib import Path

import pytest

from tfdist.launch.agent_program import cuda


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """No CUDA library anywhere."""
    monkeypatch.setattr(cuda, "LINKER_CACHE", str(tmp_path / "ld.so.cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), "/no/such.zip"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return tmp_path


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_without_cuda_all_libraries_are_missing(nothing):
    assert cuda.missing_cuda_libraries() == list(cuda.CUDA_LIBRARIES)


def test_the_wheels_beside_tensorflow_have_the_libraries(nothing):
    for library, package in cuda.CUDA_LIBRARIES.items():
        fill(nothing / "site-packages" / "nvidia" / package / "lib", library)
    assert cuda.missing_cuda_libraries() == []


@pytest.mark.parametrize("place", ["cache", "LD_LIBRARY_PATH", "prefix"])
def test_libraries_of_the_system_or_of_conda_are_found(place, nothing, monkeypatch):
    others = [name for name in cuda.CUDA_LIBRARIES if name != "libcudnn.so.9"]
    if place == "cache":
        (nothing / "ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1" + b"\0".join(map(str.encode, others)))
    else:
        folder = nothing / "prefix" / "lib" if place == "prefix" else nothing / "cuda"
        fill(folder, *others)
        monkeypatch.setenv("LD_LIBRARY_PATH", f":{nothing / 'cuda'}")
    assert cuda.missing_cuda_libraries() == ["libcudnn.so.9"]


def test_the_libraries_are_those_of_tensorflows_extra():
    from importlib.metadata import requires

    extra = [text for text in requires("tensorflow") or [] if "and-cuda" in text]
    for package in cuda.CUDA_LIBRARIES.values():
        assert any(text.startswith(f"nvidia-{package.replace('_', '-')}-cu12") for text in extra), package
