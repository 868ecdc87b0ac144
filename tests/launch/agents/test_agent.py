import sys

import pytest

from tfdist.launch.agents import agent

ROWS = [["0", "GPU-aa11", "A100"], ["1", "GPU-bb22", "H100"]]


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, [("0", "A100"), ("1", "H100")]),
        ("1", [("1", "H100")]),
        ("1,0", [("1", "H100"), ("0", "A100")]),
        ("GPU-bb", [("GPU-bb", "H100")]),
        ("0,7,1", [("0", "A100")]),
        ("MIG-1234", [("MIG-1234", "MIG device")]),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_selects_gpus_as_in_cuda(visible, shown):
    assert agent.visible_gpus(ROWS, visible) == shown


def test_a_host_without_a_driver_has_no_gpu():
    assert agent.visible_gpus([], "0,1") == []
    assert agent.visible_gpus([], "MIG-1") == []


def test_the_description_has_versions_cores_and_memory():
    description = agent.describe()
    assert description["packages"]["tensorflow"].startswith("2.21")
    assert description["cores"]
    assert description["memory_bytes"] > 1e8


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
