"""Workers of parameter servers, on any number of devices. Pure.

They queue for the servers, as in a closed queueing network: a worker computes for a while, then waits for its turn at
each server. Exact mean value analysis (Reiser and Lavenberg 1980): a worker that arrives finds the queue of a job with
one worker less. The service time is that with which the measured arm makes its steps.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdist.bench.predict.compute import Compute, batch_of, error_of
from tfdist.bench.predict.curve import (
    DRAWS,
    RANGE,
    Draws,
    Parts,
    Question,
    ScalingCurve,
    curve_of,
    grid_of,
    is_far,
    link_of_bench,
)
from tfdist.bench.predict.ring import RingLink
from tfdist.bench.report.summary import ArmRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_HALVINGS = 60


def steps_per_s(workers: int, compute_s: "Array", service_s: "Array", servers: int) -> "Array":
    """Steps/s of all workers together, for 1 to `workers` of them (rows); columns: cases.

    `service_s`: of all servers together for one step, spread evenly. At most `servers / service_s` steps/s are served.
    """
    import numpy as np

    share = service_s / servers
    queue = np.zeros_like(compute_s)
    rates = np.empty((workers, len(compute_s)))
    for number in range(1, workers + 1):
        at_server = share * (1 + queue)
        rates[number - 1] = number / (compute_s + servers * at_server)
        queue = rates[number - 1] * at_server
    return rates


def service_s(measured_steps_per_s: "Array", workers: int, compute_s: "Array", servers: int) -> "Array":
    """The service times with which so many workers make that many steps/s; 0 where computing alone takes longer.

    By bisection: more service is fewer steps.
    """
    import numpy as np

    low, high = np.zeros_like(compute_s), workers / measured_steps_per_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        faster = steps_per_s(workers, compute_s, middle, servers)[-1] > measured_steps_per_s
        low, high = np.where(faster, middle, low), np.where(faster, high, middle)
    found: Array = np.where(low > 1e-12, low, 0.0)
    return found


def predict_async(row: ArmRow, compute: Compute, question: Question, seed: int = 0) -> ScalingCurve:
    """The curve of a parameter-server arm: as many servers as measured."""
    import numpy as np

    grid = grid_of(question.devices)
    rng = np.random.default_rng(seed)
    drawn, noise = rng.standard_normal((DRAWS, len(compute.times))), error_of(row) * rng.standard_normal(DRAWS)
    drawn[0], noise[0] = 0, 0
    spec, batch, devices = row.measured[0].spec, batch_of(row), row.devices or 1
    workers, servers = int(spec["workers"]), max(1, int(spec["ps"]))
    of_worker = devices // workers
    before, after = (_on_wire(link, question.gradient_bytes) for link in (link_of_bench(row), question.link))
    if question.link is None:
        after = before
    alone = compute.seconds(np.array([float(devices)]), drawn)[:, 0]
    steps = (row.images_per_s or 0.0) / (batch * of_worker) * np.exp(noise)
    moved = np.clip(workers / steps - alone, 0.0, before[1])  # transfers that do not overlap with computing
    service = np.maximum(service_s(steps, workers, alone + moved, servers) - before[0], 0.0) + after[0]
    seconds = compute.seconds(grid, drawn)
    own = seconds + np.maximum(moved + after[1] - before[1], 0.0)[:, None]
    numbers = -(-grid.astype(int) // of_worker)  # of workers
    rates = _steps(own, service, numbers, servers) * batch * grid / numbers
    total = grid * batch / rates
    parts = Parts(seconds, np.maximum(total - seconds, 0.0), np.zeros_like(total), np.zeros_like(total))
    served = servers / max(float(service[0]), 1e-12) * batch * of_worker
    most = 0 if is_far(link_of_bench(row), question.link) else RANGE * devices
    curve = curve_of(row, compute, question, Draws(grid, rates, parts, batch), most)
    return replace(curve, service=served)


def _steps(own: "Array", service: "Array", workers: "Array", servers: int) -> "Array":
    """Steps/s: draws x numbers of workers. Columns with the same compute time are one calculation."""
    import numpy as np

    found = np.empty_like(own)
    begins = np.flatnonzero(np.r_[True, (np.diff(own, axis=1) != 0).any(axis=0)])
    for begin, end in zip(begins, [*begins[1:], own.shape[1]], strict=True):
        rows = steps_per_s(int(workers[end - 1]), own[:, begin], service, servers)
        found[:, begin:end] = rows[workers[begin:end] - 1].T
    return found


def _on_wire(link: RingLink | None, size: int) -> tuple[float, float]:
    """Seconds that a step's transfers occupy a server's link one way, and that they add to a worker's own time.

    A worker pulls the variables and pushes gradients of the same size; each is a request and an answer.
    """
    if link is None:
        return 0.0, 0.0
    once = size / link.bytes_per_s if link.bytes_per_s else 0.0
    return once, 2 * once + 4 * link.latency_s
