import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.jobs import roles
from tfdist.launch.agent_program.system import check_folder
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.messages import CheckFolder, FolderChecked
from tfdist.launch.doctor.preflight import check_checkpoint_folder, preflight
from tfdist.launch.errors import ExitCode, Problem, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy

H1, H2, H3 = (Host(f"h{number}", f"10.0.0.{number}") for number in (1, 2, 3))
PATH = "/shared/checkpoints"


def job(path, *hosts, shapes=None):
    machines = {host: Machine((0,), (), slots=1) for host in hosts}
    shape = Shape(shapes or roles(worker=len(hosts)), has_cluster=False)
    return replace(plan_job(shape, Program(("true",), {}, "/"), machines), checkpoint_dir=path)


class FakeFleet:
    """Hosts that see PATH at these places, or are lost when they are asked."""

    def __init__(self, **folders):
        self.folders, self.lost, self.policy, self.sent = folders, {}, Policy(), []

    def ask(self, requests, what, seconds):
        replies = {}
        for host, request in requests.items():
            assert isinstance(request, CheckFolder)
            assert request.path == PATH
            self.sent.append((host.name, request.action))
            if self.folders[host.name] is None:
                self.lost[host] = Problem("lost the agent", "retry", host.name)
            else:
                reason = check_folder(str(self.folders[host.name]), request.token, request.action)
                replies[host] = FolderChecked(reason)
        return replies


def refusal(planned, fleet):
    with pytest.raises(TfdistError) as caught:
        check_checkpoint_folder(planned, fleet)
    return str(caught.value), caught.value.exit_code


def test_one_host_writes_and_the_others_read(tmp_path):
    fleet = FakeFleet(h1=tmp_path, h2=tmp_path, h3=tmp_path)
    check_checkpoint_folder(job(PATH, H1, H2, H3), fleet)
    assert fleet.sent == [("h1", "write"), ("h2", "read"), ("h3", "read"), ("h1", "remove")]
    assert list(tmp_path.iterdir()) == []


def test_a_job_without_checkpoints_asks_nothing():
    fleet = FakeFleet()
    check_checkpoint_folder(job("", H1, H2), fleet)
    assert fleet.sent == []


def test_folders_that_are_not_shared_are_one_line(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    text, code = refusal(job(PATH, H1, H2, H3), FakeFleet(h1=tmp_path / "a", h2=tmp_path / "b", h3=tmp_path / "none"))
    assert text == (
        f"h2, h3: the checkpoint folder {PATH} is not that of h1; choose a folder on a disk that all hosts share, "
        "with --checkpoint-dir"
    )
    assert code == ExitCode.USAGE
    assert [*tmp_path.glob("*/*"), *tmp_path.glob("*/.*")] == []


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    fleet = FakeFleet(h1=tmp_path / "file" / "x", h2=tmp_path)
    text, code = refusal(job(PATH, H1, H2), fleet)
    assert text == (
        f"h1: the checkpoint folder {PATH} cannot be written (Not a directory); choose another one with --checkpoint-dir"
    )
    assert (code, fleet.sent[1:]) == (ExitCode.USAGE, [("h1", "remove")])


def test_a_host_that_is_lost_meanwhile(tmp_path):
    assert refusal(job(PATH, H1, H2), FakeFleet(h1=tmp_path, h2=None)) == (
        "h2: lost the agent; retry",
        ExitCode.HOST_LOST,
    )
    assert list(tmp_path.iterdir()) == []


def test_only_hosts_whose_tasks_need_the_folder_are_asked(tmp_path):
    shapes = {
        "chief": RoleShape(1, computes=False),
        "worker": RoleShape(2, leads=False, serves=True, needs_checkpoints=False),
    }
    fleet = FakeFleet(h1=tmp_path)
    check_checkpoint_folder(job(PATH, H1, H2, shapes=shapes), fleet)
    assert fleet.sent == [("h1", "write"), ("h1", "remove")]


def test_the_preflight_checks_the_folder(tmp_path):
    one, two = (Host(name, "127.0.0.1", python=sys.executable) for name in ("one", "two"))
    folder = tmp_path / "it's; [new]"
    with connect((one, two), Policy()) as fleet:
        preflight(job(str(folder), one, two), fleet, needs_tensorflow=False)
        assert list(folder.iterdir()) == []
        Path(folder, "file").touch()
        with pytest.raises(TfdistError, match=r"one: the checkpoint folder .*/file is a file, not a folder; choose"):
            preflight(job(f"{folder}/file", one, two), fleet, needs_tensorflow=False)
