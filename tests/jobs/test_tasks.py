import json
from dataclasses import asdict, replace
from datetime import datetime, timezone

import pytest

from tests.launch.jobs import python_job, roles
from tfdist.jobs.presets import resolve
from tfdist.jobs.tasks import only_task, plan_command, plan_training, shape_of
from tfdist.launch.agents.messages import Event, Exited
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.doctor.preflight import with_free_ports
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.redact import REDACTED
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter, describe_plan, save_plan
from tfdist.models.record import Evaluation, RankRecord, Window
from tfdist.models.run import evaluations_in, record_of
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Keras, StrategyName

FLAGS = ("t.py", "--ps={ps_hosts}", "--workers={worker_hosts}")


def test_flags_that_name_the_hosts_ask_for_a_cluster_without_a_chief():
    choice = StrategyChoice(StrategyName.PARAMETER_SERVER, workers=2, ps=1)
    job = plan_command(choice, Program(FLAGS, {}, "/"), local_machines())
    assert [plan.task.name for plan in job.plans] == ["worker-0", "worker-1", "ps-0"]
    assert (job.leading, job.serving) == (("worker-0", "worker-1"), ("ps-0",))
    assert {role.restarts for role in job.roles.values()} == {("worker", "ps")}
    with_chief = plan_command(choice, Program(("t.py", "{job}", "{index}"), {}, "/"), local_machines())
    assert with_chief.leading == ("chief-0",)


@pytest.mark.parametrize(
    ("strategy", "words", "flag"),
    [
        (StrategyName.MIRRORED, FLAGS, "{ps_hosts}"),
        (StrategyName.MULTI_WORKER, FLAGS, "{ps_hosts}"),
        (StrategyName.INDEPENDENT, FLAGS[2:], "{worker_hosts}"),
    ],
)
def test_flags_for_hosts_that_a_strategy_does_not_have_are_refused(strategy, words, flag):
    with pytest.raises(MissingHardwareError, match=f"^{flag} in the command: {strategy} has no such tasks; use --str"):
        plan_command(StrategyChoice(strategy), Program(words, {}, "/"), local_machines())
    workers = plan_command(StrategyChoice(StrategyName.MULTI_WORKER), Program(FLAGS[2:], {}, "/"), local_machines())
    assert workers.leading == ("worker-0",)


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


SPEC = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2)
WINDOW = Window(steps=5, examples=10, elapsed_s=1.0, loss=0.5)
HOST = {"cores": [0, 1], "cpu": "c", "executable": "/home/me/python", "clock": 1.0, "gpu_ids": ["GPU-1"]}


def rank(task, windows=(WINDOW,)):
    return asdict(RankRecord(task, "h", 1, (), windows, {"import": 1.0}, 10, 5))


def record(records, status=Status.OK, exit_code=0, hosts=None, spec=SPEC):
    outcome = Outcome(
        status,
        exit_code,
        "",
        exits={"worker-0": Exited("worker-0", 0, 0.0, 7, 1.5)},
        records=records,
        hosts=hosts or {"h": HOST},
    )
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return record_of(outcome, spec, ("worker-0", "worker-1"), arm="a", started=now.isoformat(), with_windows=True)


def test_ranks_are_in_order_with_their_resource_usage():
    result = record({f"worker-{n}": rank(f"worker-{n}") for n in (1, 0)}, hosts={"h1": HOST, "h2": HOST})
    assert [each.task for each in result.ranks] == ["worker-0", "worker-1"]
    assert (result.status, result.hosts) == ("ok", 2)
    assert result.usage["worker-0"].peak_memory_bytes == 7


def test_more_than_ten_ranks_are_in_numeric_order():
    result = record({f"worker-{n}": rank(f"worker-{n}") for n in range(11)})
    assert [each.task for each in result.ranks][-2:] == ["worker-9", "worker-10"]


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"worker-0": rank("worker-0")},
        {"worker-0": rank("worker-0"), "worker-1": rank("worker-1", ())},
        {"worker-0": rank("worker-0"), "worker-1": {"task": "worker-1"}},
    ],
)
def test_a_successful_job_without_every_measurement_has_failed(records):
    result = record(records)
    assert (result.status, result.exit_code) == ("failed", 1)
    assert "worker-1" in result.reason


def test_a_program_without_steps_is_told_how_to_measure_them():
    result = record({"worker-0": rank("worker-0")}, spec=StrategyChoice(strategy=StrategyName.INDEPENDENT, workers=2))
    assert result.reason.startswith("worker-1 exited with code 0 and measured no step: use tfdist.measure.steps()")


def test_a_record_contains_no_path_and_no_gpu_id():
    assert set(record({}).hardware) == {"cores", "cpu"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"step": 50, "accuracy": 0.5}, [Evaluation(50, 0.5)]),
        ({"step": "x", "accuracy": 0.5}, []),
        ({"accuracy": 0.5}, []),
    ],
)
def test_an_evaluation_is_read_from_its_event(values, expected):
    assert list(evaluations_in(Event("evaluator-0", 0.0, {"event": "evaluation", **values}))) == expected
    assert list(evaluations_in(Event("evaluator-0", 0.0, {"event": "step", **values}))) == []


def test_the_tasks_of_each_strategy():
    spec = TrainingSpec(strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=1)
    shape = shape_of(spec)
    assert {role: (tasks.count, tasks.computes) for role, tasks in shape.roles.items()} == {
        "chief": (1, False), "worker": (2, True), "ps": (1, False),
    }  # fmt: skip
    assert [role for role, tasks in shape.roles.items() if tasks.leads] == ["chief"]
    assert [role for role, tasks in shape.roles.items() if tasks.serves] == ["worker", "ps"]
    assert all(tasks.leads and not tasks.serves for tasks in shape_of(SPEC).roles.values())
    assert not shape_of(TrainingSpec(strategy=StrategyName.INDEPENDENT, workers=3)).has_cluster


def test_every_task_receives_the_spec_in_its_environment():
    spec = resolve({"strategy": "multiworker"}, Machine((0, 1), ()), "smoke").spec
    job = plan_training(spec, local_machines(Machine((0, 1), ())))
    for plan in job.plans:
        assert plan.program.env["TF_USE_LEGACY_KERAS"] == "1"
        assert plan.program.env.keys() >= spec.to_env().keys()


@pytest.mark.parametrize("strategy", [StrategyName.MIRRORED, StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER])
def test_an_evaluator_is_outside_the_cluster_and_does_not_end_the_job(strategy):
    machine = Machine((0, 1, 2, 3), ("A100",) * 4)
    spec = resolve({"strategy": str(strategy), "dataset": "digits"}, machine, "smoke").spec
    assert "evaluator" not in plan_training(spec, local_machines(machine)).roles
    job = plan_training(spec, local_machines(machine), evaluator=True)
    ports = {plan.task.name: 3000 + number for number, plan in enumerate(job.plans) if plan.port is not None}
    job, evaluator = job.with_ports(ports), job.plans[-1]
    assert (evaluator.task.name, evaluator.port) == ("evaluator-0", None)
    assert "evaluator-0" not in (*job.leading, *job.serving)
    assert evaluator.program.env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert not any("evaluator" in job.environment(plan).get("TF_CONFIG", "") for plan in job.plans[:-1])


def test_an_evaluator_runs_on_the_host_with_its_role():
    spec = resolve({"strategy": "one-device", "dataset": "digits"}, Machine((0, 1), ()), "smoke").spec
    machines = {Host("h1"): Machine((0, 1), ()), Host("h2", role="evaluator"): Machine((0, 1), ())}
    assert [plan.host.name for plan in plan_training(spec, machines, evaluator=True).plans] == ["h1", "h2"]
    with pytest.raises(TfdistError, match="--set evaluator=true: synthetic has no held-out examples"):
        plan_training(replace(spec, dataset="synthetic"), machines, evaluator=True)
    with pytest.raises(TfdistError, match="h2 has role=evaluator, but this job has no evaluator"):
        plan_training(spec, machines)


@pytest.mark.parametrize(("threads", "variable"), [("gpu_private", "gpu_private"), ("global", None)])
def test_the_threads_of_gpus_are_set_in_every_tasks_environment(threads, variable):
    machine = Machine((0, 1), ("A100",) * 2)
    spec = resolve({"strategy": "multiworker", "gpu_threads": threads}, machine, "cpu").spec
    job = plan_training(spec, local_machines(machine))
    assert {plan.program.env.get("TF_GPU_THREAD_MODE") for plan in job.plans} == {variable}


@pytest.mark.parametrize(("threads", "expected"), [(None, "1"), (2, "2")])
def test_intra_op_threads_replace_one_thread_per_core(threads, expected):
    machines = local_machines(Machine((0, 1), ()))
    spec = resolve({"strategy": "multiworker", "intra_op_threads": threads}, Machine((0, 1), ()), "cpu").spec
    command = Program(("true",), {"OMP_NUM_THREADS": "7"}, "/", False)
    trained, run = plan_training(spec, machines), plan_command(spec, command, machines)
    assert {threads_of(plan) for plan in trained.plans} == {(expected, expected, "2")}
    assert {threads_of(plan) for plan in run.plans} == {(expected, "7", "2")}


def threads_of(plan):
    variables = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS")
    return tuple(plan.program.env[name] for name in variables)


def test_the_order_in_which_an_agent_lists_the_cores_is_not_part_of_the_hardware():
    ranks = {f"worker-{n}": rank(f"worker-{n}") for n in (0, 1)}
    busy = {**HOST, "cores": [1, 0]}
    assert record(ranks, hosts={"h": busy}).hardware == record(ranks, hosts={"h": HOST}).hardware


@pytest.mark.parametrize(
    ("strategy", "role", "leads"),
    [
        ("multiworker", "worker", True),
        ("parameter-server", "chief", True),
        ("parameter-server", "worker", False),
        ("parameter-server", "ps", False),
        ("between-graph", "worker", False),
        ("in-graph", "worker", False),
    ],
)
def test_of_a_job_under_several_launchers_only_leading_tasks_report_steps(strategy, role, leads):
    machine, task = Machine((0, 1), ()), Task(role, 0)
    spec = resolve({"strategy": strategy}, machine, "smoke").spec
    job = only_task(plan_training(spec, local_machines(machine)), Cluster({role: ("h:1",)}), task)
    assert (job.reports_steps, job.led_elsewhere) == (leads, not leads)
    assert ("TFDIST_INHERITED" in job.plans[0].program.env) is leads
    assert job.leading == (task.name,)


@pytest.mark.parametrize(("role", "leads"), [("worker", True), ("evaluator", False)])
def test_a_program_under_several_launchers_may_report_no_steps(role, leads):
    machines = local_machines(Machine((0, 1), ()))
    choice = StrategyChoice(strategy=StrategyName.MULTI_WORKER, workers=2)
    job = plan_command(choice, Program(("true",), {}, "/"), machines)
    only = only_task(job, Cluster({"worker": ("h:1", "i:1")}), Task(role, 0))
    assert (only.reports_steps, only.led_elsewhere) == (False, not leads)
    assert "TFDIST_INHERITED" not in only.plans[0].program.env


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        (TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2, devices=2), "--workers 4"),
        (TrainingSpec(strategy=StrategyName.CENTRAL_STORAGE, devices=2, keras=Keras.THREE), "--keras 2"),
    ],
)
def test_what_tensorflow_cannot_train_is_refused_also_when_a_job_is_planned_again(spec, fix):
    with pytest.raises(TfdistError, match=fix):
        plan_training(spec, local_machines(Machine((0, 1, 2, 3), ())))
