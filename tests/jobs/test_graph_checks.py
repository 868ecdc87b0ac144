"""Options that trainings in graph mode cannot have, or would ignore, are refused."""

import pytest

from tfdist.jobs.presets import resolve, resolve_strategy
from tfdist.jobs.tasks import plan_training, shape_of
from tfdist.launch.agent_program.template import module_command
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines
from tfdist.strategies.catalog import Exchange

CPU = Machine((0, 1, 2, 3), ())
BETWEEN = {"strategy": "between-graph", "workers": 3, "ps": 1}
IN_GRAPH = {"strategy": "in-graph", "workers": 2}


def test_workers_step_alone_unless_they_are_synchronous():
    assert resolve(BETWEEN, CPU, "smoke").spec.exchange is Exchange.ASYNC
    sync = resolve({**BETWEEN, "sync": True, "backup_workers": 1}, CPU, "smoke").spec
    assert sync.exchange is Exchange.SYNC
    assert sync.global_batch_size == 2 * sync.batch_size
    assert resolve(IN_GRAPH, CPU, "smoke").spec.exchange is Exchange.SYNC


def test_in_graph_needs_no_parameter_server():
    assert resolve(IN_GRAPH, CPU, "smoke").spec.ps == 0
    assert resolve({**IN_GRAPH, "ps": 2}, CPU, "smoke").spec.ps == 2
    assert resolve({"strategy": "between-graph"}, CPU, "smoke").spec.ps == 1


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({**BETWEEN, "ps": 0}, "--ps 0: between-graph keeps"),
        (
            {**BETWEEN, "backup_workers": 1},
            "--set backup_workers=1: asynchronous workers do not wait for each other; add --sync",
        ),
        ({**BETWEEN, "sync": True, "backup_workers": 3}, "--set backup_workers=3: .* use 2 or fewer"),
        ({**BETWEEN, "backup_workers": -1}, "--set backup_workers=-1: must be at least 0"),
        ({"strategy": "parameter-server", "sync": True}, "--sync has no effect .* between-graph"),
        ({**IN_GRAPH, "sync": True}, "--sync has no effect .* between-graph"),
        ({**BETWEEN, "precision": "mixed_bfloat16"}, "--precision mixed_bfloat16 --strategy between-graph: it trains"),
        ({**IN_GRAPH, "precision": "mixed_float16"}, "--precision mixed_float16 --strategy in-graph: .*; omit it"),
        ({**IN_GRAPH, "xla": True}, "--xla --strategy in-graph"),
        ({**BETWEEN, "steps_per_call": 2}, "--steps-per-call 2 --strategy between-graph"),
        ({**BETWEEN, "sync": True, "step_times": True}, "step_times --strategy between-graph"),
        ({**BETWEEN, "sync": True, "count_updates": True}, "count_updates has no effect"),
        ({**BETWEEN, "devices": 2}, "--devices 2 has no effect under --strategy between-graph"),
        ({**BETWEEN, "keras": "3"}, "--keras 3 .*BatchNorm.*; use --keras 2"),
        ({**BETWEEN, "keras": "3", "api": "fit"}, "--api fit .*use --keras 2 --api loop"),
        ({**BETWEEN, "api": "fit"}, "--api fit .*Model.fit.*; use --api loop"),
        (
            {**BETWEEN, "sync": True, "backup_workers": 1, "global_batch_size": 33},
            "not divisible by 2 replicas; use 32",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_its_value(choices, words):
    with pytest.raises(TfdistError, match=words):
        resolve(choices, CPU, "smoke")


def test_a_program_of_the_user_gets_no_graph_strategy():
    with pytest.raises(TfdistError, match=r"--strategy between-graph: a COMMAND gets .*--strategy parameter-server"):
        resolve_strategy({"strategy": "between-graph"}, CPU)


def test_tasks_have_the_roles_of_parameter_server_and_run_the_graphs():
    spec = resolve(BETWEEN, CPU, "smoke").spec
    job = plan_training(spec, local_machines(CPU))
    assert job.leading == ("chief-0",)
    assert job.serving == ("worker-0", "worker-1", "worker-2", "ps-0")
    assert {plan.program.argv[1:] for plan in job.plans} == {module_command("tfdist.models.graph.task")}
    assert {plan.program.env["GRPC_FAIL_FAST"] for plan in job.plans} == {"use_caller"}
    roles = shape_of(spec).roles
    assert roles["worker"].restarts == ()
    assert roles["chief"].restarts == roles["ps"].restarts == ("chief", "worker", "ps")


def test_servers_of_in_graph_run_no_graph_of_their_own():
    from tfdist.launch.cluster import Task
    from tfdist.strategies.build import serves

    between, in_graph = (resolve(choices, CPU, "smoke").spec for choices in (BETWEEN, IN_GRAPH))
    assert serves(in_graph, Task("worker", 1))
    assert not serves(between, Task("worker", 1))
    assert serves(between, Task("ps", 0))
    assert not serves(in_graph, Task("chief", 0))
