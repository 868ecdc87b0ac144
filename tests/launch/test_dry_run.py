import json
from dataclasses import replace

import pytest

from tfdist.launch.dry_run import describe_plan, save_plan, with_free_ports
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.redact import REDACTED
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter

from .jobs import python_job, roles


def test_every_task_gets_a_free_port():
    addresses = with_free_ports(python_job("", {"worker": 3})).cluster.addresses["worker"]
    assert len(set(addresses)) == 3
    assert all(0 < int(address.rpartition(":")[2]) < 65536 for address in addresses)


def test_secrets_reach_the_task_but_no_file_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tfdist", "launch", "-x", "MY_TOKEN=hunter2", "--", "t.py"])
    program = Program(("t.py", "--password=hunter2"), {"MY_TOKEN": "hunter2", "VISIBLE": "yes"}, "/")
    job = plan_job(Shape(roles(worker=2), has_cluster=False), program, local_machines(Machine((0,), ())))
    (tmp_path / "run").mkdir()
    job = replace(job, shared={"NCCL_DEBUG": "INFO", "TF_API_KEY": "hunter2"})
    with RunWriter(RunDir(tmp_path / "run"), pytest.fail) as writer:
        save_plan(job, {}, writer)
    assert job.environment(job.plans[0])["MY_TOKEN"] == "hunter2"
    described = describe_plan(job, job.plans[0])
    assert described["env"]["MY_TOKEN"] == REDACTED
    assert described["env"]["VISIBLE"] == "yes"
    assert "hunter2" not in json.dumps(described)
    written = {path.name: path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert "commands.txt" in written
    assert "MY_TOKEN=***" in written["commands.txt"]
    assert "\nenvironment: NCCL_DEBUG=INFO 'TF_API_KEY=***'\n" in written["commands.txt"]
    assert not [name for name, text in written.items() if "hunter2" in text]
