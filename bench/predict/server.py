"""Workers and parameter servers as a closed queueing network. Pure.

A worker computes for a while, then waits for its turn at each of the servers. Exact mean value analysis (Reiser and
Lavenberg 1980): a worker that arrives finds the queue of a job with one worker less.
"""

from typing import TYPE_CHECKING

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
