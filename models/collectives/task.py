"""Measures the operations of TFDIST_COLLECTIVE_SPEC, a turn at a time."""

from dataclasses import asdict

from tfdist.launch import events
from tfdist.launch.cluster import Task
from tfdist.launch.errors import ExitCode
from tfdist.models.architectures.build import build as build_model
from tfdist.models.collectives.spec import CollectiveSpec, cases_of, shuffled
from tfdist.models.record import RankRecord
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import observation
from tfdist.models.training.ending import leave
from tfdist.models.training.task import cluster_and_task, import_tensorflow, run
from tfdist.strategies.build import build


def main() -> int:
    """Measure what the environment describes; returns as a training task."""
    return run(lambda: _measure(CollectiveSpec.of_task("measure with `tfdist collectives`"), cluster_and_task()[1]))


def _measure(spec: CollectiveSpec, task: Task) -> None:
    import_tensorflow(spec.keras)
    from tfdist.models.collectives.exchange import TaskRanks

    exchange = TaskRanks(spec, build(spec), task)

    def report() -> None:
        record = RankRecord(
            task=task.name,
            replicas=exchange.strategy.num_replicas_in_sync // spec.workers,
            warmup=(),
            windows=(),
            phases_s={},
            examples_applied=0,
            updates_applied=0,
            **observation.process(spec.keras, exchange.strategy.extended.worker_devices),
        )
        events.emit("record", record=asdict(record))

    events.emit("ready")
    events.emit("phase", phase=events.Phase.BUILDING)
    gradients: list[int] = []  # elements of each, in the order of the model's variables
    if spec.model_gradients:
        model = build_model(TrainingSpec(model=spec.model, alpha=spec.alpha, classes=spec.classes))
        gradients = [variable.shape.num_elements() for variable in model.trainable_variables]
    cases = cases_of(spec, gradients)
    events.emit("phase", phase=events.Phase.TRACING)
    for case in cases:
        exchange.open(case)
    report()
    number = 0
    while (turn := events.wait_at_barrier(step_s=spec.turn_s)) is not None and turn.windows:
        number += 1
        measured = [exchange.measure(case, spec.turn_s / len(cases)) for case in shuffled(cases, spec.seed, number)]
        events.emit("turn", windows=[], observed={"collectives": measured})
    report()
    leave(ExitCode.SUCCESS)
