"""One task of a cluster that another launcher has started: what is planned for it."""

import json
import os
from pathlib import Path

import pytest

from tfdist.cli.command import run
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.plan import plan as plan_on
from tfdist.jobs.request import Request
from tfdist.launch.cluster import Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.inherit.table import SourceName
from tfdist.launch.machine import Machine
from tfdist.models.checkpoints import Checkpointing

SLURM = {
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_PROCID": "3",
    "SLURMD_NODENAME": "n2",
}
CHIEF = {"chief": ["c:1"], "worker": ["w:1"]}
SERVED = {**CHIEF, "ps": ["p:1"]}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("TF_CONFIG", "TFDIST_ATTEMPT", "CLUSTER_SPEC", *SLURM):
        monkeypatch.delenv(name, raising=False)


def set_tf_config(monkeypatch, cluster, role="worker", index=0):
    config = {"cluster": cluster, "task": {"type": role, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def set_slurm(monkeypatch, **changed):
    for name, value in {**SLURM, **changed}.items():
        monkeypatch.setenv(name, value)


def plan(choices=None, command=("true",), source=SourceName.AUTO, machine=None, **options):
    inherit = Inherit(source).read(os.environ, options.get("port"))
    machines = {LOCAL: machine or Machine((0, 1), ())}
    return plan_on(Request(choices or {}, command, inherit=inherit, **options), machines)


def tf_config_of(planned):
    (only,) = planned.job.plans
    return json.loads(planned.job.environment(only)["TF_CONFIG"])


def test_a_task_of_slurm_gets_tf_config(monkeypatch):
    set_slurm(monkeypatch)
    planned = plan(port=5000)
    workers = ["n1:5000", "n1:5001", "n2:5000", "n2:5001"]
    assert tf_config_of(planned) == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 3}}
    assert planned.spec.workers == 4
    assert planned.notes == ("this task, from SLURM_STEP_NODELIST: worker 3",)
    assert planned.rendezvous.task == Task("worker", 3)


def test_the_dry_run_prints_it_and_waits_for_nobody(monkeypatch, capsys):
    set_slurm(monkeypatch)
    assert run(["launch", "--inherit", "slurm", "--port", "5000", "--dry-run", "--json", "--", "true"]) == 0
    (task,) = json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"]
    assert json.loads(task["env"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 3}


@pytest.mark.parametrize(("rank", "gpu", "cores"), [("2", "0", (0,)), ("3", "1", (1,))])
def test_tasks_on_one_host_get_different_gpus_and_cores(rank, gpu, cores, monkeypatch):
    set_slurm(monkeypatch, SLURM_PROCID=rank)
    planned = plan(machine=Machine((0, 1), ("A100", "A100"), ("0", "1")))
    assert planned.job.plans[0].program.env["CUDA_VISIBLE_DEVICES"] == gpu
    busy_first = plan({"preset": "smoke", "workers": 4}, (), machine=Machine((1, 0), ()))
    assert busy_first.job.plans[0].cores == cores


@pytest.mark.parametrize(
    ("choices", "gpus", "devices"), [({}, 4, 4), ({}, 1, 1), ({}, 0, 1), ({"devices": 2}, 4, 2), ({"devices": 1}, 4, 1)]
)
def test_a_worker_alone_on_its_host_uses_all_gpus(choices, gpus, devices, monkeypatch):
    set_tf_config(monkeypatch, {"worker": ["a:1", "b:1"]}, index=1)
    planned = plan(choices, machine=Machine((0, 1), ("A100",) * gpus, tuple(map(str, range(gpus)))))
    assert planned.spec.devices == devices
    visible = planned.job.plans[0].program.env.get("CUDA_VISIBLE_DEVICES")
    assert visible == (",".join(map(str, range(devices))) if gpus else None)


@pytest.mark.parametrize(("role", "index", "rank"), [("chief", 0, 0), ("master", 0, 0), ("worker", 0, 1)])
@pytest.mark.parametrize("command", [("true",), ()])
def test_a_chief_without_ps_is_worker_0(role, index, rank, command, monkeypatch):
    cluster = {"master" if role == "master" else "chief": ["c:1"], "worker": ["w:1"]}
    set_tf_config(monkeypatch, cluster, role, index)
    planned = plan({} if command else {"preset": "smoke"}, command)
    assert tf_config_of(planned) == {"cluster": {"worker": ["c:1", "w:1"]}, "task": {"type": "worker", "index": rank}}
    there = "chief 0" if role == "master" else f"{role} {index}"
    assert planned.notes[-1] == f"this task, from TF_CONFIG: worker {rank} ({there} there)"
    assert (planned.spec.strategy, planned.spec.workers) == ("multiworker", 2)


@pytest.mark.parametrize("role", ["chief", "worker", "ps"])
def test_a_cluster_with_ps_keeps_its_chief(role, monkeypatch):
    set_tf_config(monkeypatch, SERVED, role)
    planned = plan({"preset": "smoke"}, ())
    assert tf_config_of(planned) == {"cluster": SERVED, "task": {"type": role, "index": 0}}
    assert (planned.spec.strategy, planned.spec.ps) == ("parameter-server", 1)
    assert planned.job.leading == (f"{role}-0",)
    assert (planned.job.reports_steps, planned.job.led_elsewhere) == (role == "chief", role != "chief")


@pytest.mark.parametrize(
    ("cluster", "role", "choices", "says"),
    [
        ({"worker": ["w:1"], "ps": ["p:1"]}, "worker", {}, "its cluster has no chief, which parameter-server needs"),
        ({"worker": ["w:1"]}, "evaluator", {}, "its task is evaluator-0, but .* has no evaluator: give a COMMAND"),
        (
            {"chief": ["c:1"], "ps": ["p:1"]},
            "chief",
            {},
            "the cluster in TF_CONFIG has parameter servers, but no worker",
        ),
        (SERVED, "chief", {"strategy": "multiworker"}, "--strategy multiworker: the cluster in TF_CONFIG has param"),
        (CHIEF, "chief", {"workers": 1}, "--workers 1: the cluster in TF_CONFIG has 2; omit --workers"),
        (CHIEF, "chief", {"strategy": "independent"}, "--strategy independent"),
    ],
)
def test_a_cluster_that_the_training_cannot_use_is_refused(cluster, role, choices, says, monkeypatch):
    set_tf_config(monkeypatch, cluster, role)
    with pytest.raises(TfdistError, match=says):
        plan({"preset": "smoke", **choices}, ())


def test_without_a_cluster_there_is_one_task():
    planned = plan({"strategy": "multiworker"})
    (only,) = planned.job.plans
    assert (only.task.name, planned.spec.workers, planned.rendezvous) == ("worker-0", 1, None)
    assert plan().notes == (
        "strategy one-device: one host, one device",
        "no cluster in the environment: this is the only task",
    )
    with pytest.raises(TfdistError, match=r"--inherit auto: .* multiworker with these options has 2 tasks; omit"):
        plan({"strategy": "multiworker", "workers": 2})


def test_peers_need_not_be_waited_for(monkeypatch):
    set_tf_config(monkeypatch, {"worker": ["a:1", "b:1"]})
    inherit = Inherit(waits=False).read(os.environ)
    planned = plan_on(Request({}, ("true",), inherit=inherit), {LOCAL: Machine((0,), ())})
    assert planned.rendezvous is None


def test_tasks_count_on_from_the_restarts_of_the_other_launcher(monkeypatch):
    set_tf_config(monkeypatch, {"worker": ["a:1", "b:1"]})
    monkeypatch.setenv("TFDIST_ATTEMPT", "2")
    planned = plan()
    assert (planned.job.first_attempt, planned.rendezvous.key.token) == (2, "2")
    monkeypatch.setenv("TFDIST_ATTEMPT", "two")
    with pytest.raises(TfdistError, match="TFDIST_ATTEMPT='two': must be the number of restarts"):
        plan()


def test_a_program_sees_the_number_of_restarts(monkeypatch, capfd):
    set_tf_config(monkeypatch, {"worker": ["a:1"]})
    monkeypatch.setenv("TFDIST_ATTEMPT", "2")
    command = ["sh", "-c", "echo attempt $TFDIST_ATTEMPT; exit 42"]
    assert run(["launch", "--inherit", "auto", "--", *command]) == 42
    assert "attempt 2" in capfd.readouterr().out


@pytest.mark.parametrize("saved", [False, True])
def test_the_tasks_decide_together_whether_they_resume(saved, monkeypatch, capsys):
    set_tf_config(monkeypatch, {"worker": ["a:1", "b:1"]})
    if saved:
        Path("ckpt").mkdir()
        Path("ckpt/step-00000010.json").write_text("{}")
    options = ["--preset", "smoke", "--checkpoint-dir", "ckpt", "--resume", "auto", "--dry-run", "--json"]
    assert run(["launch", "--inherit", "auto", *options]) == 0
    (task,) = json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"]
    saving = Checkpointing.from_env(task["env"])
    assert (saving.resume, saving.may_be_empty, saving.folder) == (True, True, f"{Path.cwd()}/ckpt")


def test_resume_auto_needs_a_folder(monkeypatch, capsys):
    set_tf_config(monkeypatch, {"worker": ["a:1", "b:1"]})
    assert run(["launch", "--inherit", "auto", "--preset", "smoke", "--resume", "auto"]) == 2
    assert "--resume auto: needs --checkpoint-dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag",
    [
        ("--inherit", "slurm"),
        (
            "--inherit",
            "tf-config",
        ),
    ],
)
def test_a_requeue_by_each_launcher_is_refused(flag, monkeypatch, capsys, tmp_path):
    set_slurm(monkeypatch, SLURM_JOB_ID="7")
    saves = ("--checkpoint-dir", "ckpt", "--resume", "auto")
    assert run(["launch", *flag, "--requeue", "3", *saves, "--preset", "smoke"]) == 2
    name = " ".join(flag)
    assert capsys.readouterr().err == (
        f"tfdist: --requeue 3: with {name} each task has its own launcher, and the first one to end would requeue the job "
        f"while others still save; omit it, or use --transport srun instead of {name}\n"
    )
    assert list(tmp_path.iterdir()) == []


# --- Kubernetes' termination log


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["sh", "-c", "echo ValueError: no label >&2; exit 3"], 3, "exit code 3: worker-0 exited with code 3"),
        (["true"], 0, "exit code 0: done in "),
        (["no-such-program"], 2, "exit code 2: the program 'no-such-program' is not found"),
    ],
)
def test_the_outcome_is_written_for_kubernetes(command, code, says, tmp_path, monkeypatch):
    log = tmp_path / "termination-log"
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(log))
    assert run(["launch", "--strategy", "one-device", "--", *command]) == code
    assert log.read_text().startswith(says)


def test_a_termination_log_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TFDIST_TERMINATION_LOG", str(tmp_path))
    assert run(["launch", "--strategy", "one-device", "--", "true"]) == 0
    assert f"warning: {tmp_path}: Is a directory: cannot write how the job ended" in capsys.readouterr().err
