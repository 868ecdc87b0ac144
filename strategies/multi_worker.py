"""tf.distribute.MultiWorkerMirroredStrategy: one process per worker, gradients all-reduced over the network."""

import signal
import threading
from typing import Any

import tensorflow as tf

from tfdist.strategies.choice import StrategyChoice


def communication_options(choice: StrategyChoice) -> Any:
    """The tf.distribute.experimental.CommunicationOptions of `choice`."""
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=choice.bytes_per_pack or 0,
        timeout_seconds=choice.timeout_collective_s,
        implementation=tf.distribute.experimental.CommunicationImplementation[choice.communication.name],
    )


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy of this worker in the cluster of TF_CONFIG. Blocks until all workers are up.

    SIGTERM still does what it did before: TensorFlow's server would only log it (preemption_notifier.cc), and every
    stop would take the whole grace period. A PreemptionCheckpointHandler that is created later gets the signal.
    """
    on_sigterm = signal.getsignal(signal.SIGTERM)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options(choice))
    if on_sigterm is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)
    return strategy
