"""The strategy of a custom program: its devices, and the steps that it schedules. Imports no TensorFlow by itself."""

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfdist.launch.agent_program.optional import never_free
from tfdist.launch.errors import TfdistError
from tfdist.models.custom.part import job_part
from tfdist.strategies import current
from tfdist.strategies.devices import of_replicas, wait_for_names
from tfdist.strategies.use import trained

if TYPE_CHECKING:
    import tensorflow as tf


def program_strategy() -> "tf.distribute.Strategy | None":
    """The strategy in whose scope this is called, else the one that steps ran under, else that of `current()`.

    None: it is TensorFlow's default strategy, or there is none.
    """
    if "tensorflow" not in sys.modules:
        return None
    import tensorflow as tf

    if tf.distribute.has_strategy():
        return tf.distribute.get_strategy()
    built = None
    if trained:
        built = trained[-1]
    elif current.cache_info().currsize:
        built = current()
    return None if built is tf.distribute.get_strategy() else built  # None for TensorFlow's default strategy


def wait_for(strategy: "tf.distribute.Strategy | None") -> None:
    """Return when the devices of this strategy in this task, or all of this task, have finished their work.

    So has the GPU that PyTorch computes on, if it does.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if "tensorflow" not in sys.modules:
        return
    from tensorflow import executing_eagerly

    if executing_eagerly():  # a session returns when its step is done
        wait_for_names(_local_devices() if strategy is None else of_replicas(strategy))


def _local_devices() -> list[str]:
    """Names of this task's devices; a cluster's strategy adds those of other tasks."""
    import tensorflow as tf

    names = [device.name for device in tf.config.list_logical_devices() if device.device_type in ("CPU", "GPU")]
    specs = {name: tf.DeviceSpec.from_string(name) for name in names}
    local = (None, "localhost")
    task = job_part().task
    return [name for name, spec in specs.items() if spec.job in local or f"{spec.job}-{spec.task}" == task]


def keep_iterators() -> None:
    """Leave all iterators over data to the end of the process, as the end of one may sleep for a minute.

    Source: launch/agent_program/processes.py says why it sleeps.
    """
    if "tensorflow" not in sys.modules:
        return
    import tensorflow as tf

    kinds = {tf.data.Iterator, tf.distribute.DistributedIterator}
    for each in gc.get_objects():
        if kinds.intersection(type(each).__mro__):
            never_free(each)


def find_coordinator(given: Any = None) -> Any:
    """The ClusterCoordinator: the given one, or that of the program's strategy.

    Raises:
        TfdistError: it cannot be found.
    """
    if given is not None:
        return given
    strategy = program_strategy()
    if strategy is None:
        raise TfdistError("tfdist.measure: which ClusterCoordinator? Pass coordinator=... to steps()")
    from tensorflow import distribute

    return distribute.coordinator.ClusterCoordinator(strategy)  # one per strategy


def observe_schedule(coordinator: Any) -> Callable[[], Any]:
    """A function that returns the RemoteValue of the last step scheduled since its last call.

    Raises:
        TfdistError: by the function: none was.
    """
    schedule = coordinator.schedule
    scheduled: list[Any] = []

    def observed(*args: Any, **kwargs: Any) -> Any:
        scheduled[:] = [schedule(*args, **kwargs)]
        return scheduled[0]

    def last() -> Any:
        if not scheduled:
            raise TfdistError(
                "tfdist.measure: a step ended without a call of coordinator.schedule(): schedule each step in the loop "
                "over steps()"
            )
        return scheduled.pop()

    coordinator.schedule = observed
    return last
