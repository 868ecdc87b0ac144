import sys

import pytest

from tfdist.launch.agent_program.description import describe


def test_the_description_has_versions_cores_and_memory():
    description = describe()
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
    assert describe()["packages"] == {package: file.removesuffix(".dist-info").partition("-")[2]}


def test_an_unreadable_folder_on_the_path_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", ["/no/such/folder", str(tmp_path / "a.zip"), *sys.path])
    assert describe()["packages"]["tensorflow"].startswith("2.21")
