"""`python -m tfdist.models.collectives.task`: measures the operations of TFDIST_COLLECTIVE_SPEC, a turn at a time."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfdist.launch import events
from tfdist.launch.cluster import Task
from tfdist.launch.errors import ExitCode
from tfdist.launch.events import Phase
from tfdist.models.architectures.build import build as build_model
from tfdist.models.collectives.spec import CollectiveSpec, SizeCase, cases_of, shuffled
from tfdist.models.record import RankRecord
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import observation
from tfdist.models.training.task import cluster_and_task, import_tensorflow, leave, run
from tfdist.strategies.build import build

if TYPE_CHECKING:
    from tfdist.models.collectives.exchange import TaskRanks


def main() -> int:
    """Measure what the environment describes; returns as a training task."""
    return run(lambda: _measure(CollectiveSpec.of_task("measure with `tfdist collectives`"), cluster_and_task()[1]))


def _measure(spec: CollectiveSpec, task: Task) -> None:
    import_tensorflow(spec.keras)
    from tfdist.models.collectives.exchange import TaskRanks

    exchange = TaskRanks(spec, build(spec), task)
    events.emit("ready")
    events.emit("phase", phase=Phase.BUILDING)
    cases = cases_of(spec, _gradients(spec))
    events.emit("phase", phase=Phase.TRACING)
    for case in cases:
        exchange.open(case)
    events.emit("record", record=asdict(_record(exchange)))
    _take_turns(exchange, cases)
    events.emit("record", record=asdict(_record(exchange)))
    leave(ExitCode.SUCCESS)


def _take_turns(exchange: "TaskRanks", cases: Sequence[SizeCase]) -> None:
    """Measure every case in each turn that the launcher releases."""
    spec, number = exchange.spec, 0
    while (turn := events.wait_at_barrier(step_s=spec.turn_s)) is not None and turn.windows:
        number += 1
        measured = [exchange.measure(case, spec.turn_s / len(cases)) for case in shuffled(cases, spec.seed, number)]
        events.emit("turn", windows=[], observed={"collectives": measured})


def _gradients(spec: CollectiveSpec) -> list[int]:
    """Elements of each gradient of the model, in the order of its variables."""
    if not spec.model_gradients:
        return []
    model = build_model(TrainingSpec(model=spec.model, alpha=spec.alpha, classes=spec.classes))
    return [variable.shape.num_elements() for variable in model.trainable_variables]


def _record(exchange: "TaskRanks") -> RankRecord:
    spec, strategy = exchange.spec, exchange.strategy
    return RankRecord(
        task=exchange.task.name,
        replicas=strategy.num_replicas_in_sync // spec.workers,
        warmup=(),
        windows=(),
        phases_s={},
        examples_applied=0,
        updates_applied=0,
        **observation.process(spec.keras, strategy.extended.worker_devices),
    )


if __name__ == "__main__":
    leave(main())
