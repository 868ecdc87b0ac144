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
def test_which_gpus_are_visible_and_what_each_is_called(visible, shown):
    assert agent.visible_gpus(ROWS, visible) == shown


def test_a_host_without_a_driver_has_no_gpu_whatever_is_asked_for():
    assert agent.visible_gpus([], "0,1") == []
    assert agent.visible_gpus([], "MIG-1") == []


def test_the_description_names_what_a_job_needs_to_know():
    described = agent.describe()
    assert described["packages"]["tensorflow"].startswith("2.21")
    assert described["cores"]
    assert described["memory_bytes"] > 1e8


def test_temporary_files_go_where_the_user_says_if_that_is_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert agent.temporary_root() == str(tmp_path)
    for wrong in ("", "/no/such/folder"):
        monkeypatch.setenv("TMPDIR", wrong)
        assert agent.temporary_root() == "/tmp"


def test_an_unreadable_folder_of_modules_is_passed_over_as_python_does(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", ["/no/such/folder", str(tmp_path / "a.zip"), *sys.path])
    assert agent.describe()["packages"]["tensorflow"].startswith("2.21")


@pytest.mark.parametrize(("levels", "deeper"), [(3, True), (4, False), (9, False)])
def test_how_deep_an_event_nests(levels, deeper):
    assert agent.nests_deeper({"a": [{"b": [1, "text", {}]}]}, levels) is deeper


def test_a_program_that_hangs_has_no_output(monkeypatch):
    monkeypatch.setattr(agent, "PATIENCE_S", 0.1)
    assert agent.output_of(["sleep", "60"]) == ""
    assert agent.output_of(["echo", "x"]) == "x\n"
