"""`python -m tfdist.models.collectives.task`: measures the operations of TFDIST_COLLECTIVE_SPEC, a turn at a time."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfdist.launch import events
from tfdist.launch.cluster import Task
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Phase
from tfdist.models.collectives.cases import SizeCase, cases_of, shuffled
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.record import RankRecord
from tfdist.models.training import observation
from tfdist.models.training.task import cluster_and_task, import_tensorflow, leave, run
from tfdist.strategies.build import build

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.models.collectives.exchange import TaskRanks


def main() -> int:
    """Measure what the environment describes; returns as a training task."""
    return run(lambda: _measure(_spec(), cluster_and_task()[1]))


def _spec() -> CollectiveSpec:
    spec = CollectiveSpec.from_env(os.environ)
    if spec is None:
        raise TfdistError(f"{CollectiveSpec.VARIABLE} is not set: measure with `tfdist collectives`")
    return spec


def _measure(spec: CollectiveSpec, task: Task) -> None:
    import_tensorflow(spec.keras)
    from tfdist.models.collectives.exchange import TaskRanks

    strategy = build(spec)
    events.emit("ready")
    events.emit("phase", phase=Phase.BUILDING)
    cases = cases_of(spec, _gradients(spec))
    exchange = TaskRanks(spec, strategy)
    events.emit("phase", phase=Phase.TRACING)
    for case in cases:
        exchange.open(case)
    events.emit("record", record=asdict(_record(spec, strategy, task)))
    _take_turns(spec, exchange, cases)
    events.emit("record", record=asdict(_record(spec, strategy, task)))
    leave(ExitCode.SUCCESS)


def _take_turns(spec: CollectiveSpec, exchange: "TaskRanks", cases: Sequence[SizeCase]) -> None:
    """Measure every case in each turn that the launcher releases."""
    for number in _releases(spec.turn_s):
        measured = [exchange.measure(case, spec.turn_s / len(cases)) for case in shuffled(cases, spec.seed, number)]
        events.emit("turn", windows=[], observed={"collectives": [asdict(each) for each in measured]})


def _releases(turn_s: float) -> Iterator[int]:
    number = 0
    while (turn := events.wait_at_barrier(step_s=turn_s)) is not None and turn.windows:
        number += 1
        yield number


def _gradients(spec: CollectiveSpec) -> list[int]:
    """Elements of each gradient of the model, in the order of its variables."""
    if not spec.model_gradients:
        return []
    from tfdist.models.architectures.build import build as build_model
    from tfdist.models.spec import TrainingSpec

    model = build_model(TrainingSpec(model=spec.model, alpha=spec.alpha, classes=spec.classes))
    return [variable.shape.num_elements() for variable in model.trainable_variables]


def _record(spec: CollectiveSpec, strategy: "tf.distribute.Strategy", task: Task) -> RankRecord:
    from tfdist.models.training.gpu_software import peak_gpu_memory

    return RankRecord(
        task=task.name,
        replicas=strategy.num_replicas_in_sync // spec.workers,
        warmup=(),
        windows=(),
        phases_s={},
        examples_applied=0,
        updates_applied=0,
        software=observation.software(spec.keras),
        environment=observation.environment(os.environ),
        **observation.process(),
        gpu_peak_bytes=peak_gpu_memory(strategy.extended.worker_devices),
    )


if __name__ == "__main__":
    leave(main())
