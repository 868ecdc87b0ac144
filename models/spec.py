"""What to train and how: one frozen record, complete before any process starts. Tasks receive it as JSON."""

from dataclasses import dataclass
from typing import ClassVar

from tfdist.launch.str_enum import StrEnum
from tfdist.launch.typed_json import PositiveInt
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Api, GradientDtype, Precision


def whole_calls(steps: int, per_call: int) -> int:
    """The number of steps, rounded up to whole calls."""
    return -(-steps // per_call) * per_call


def calls(steps: int, per_call: int) -> tuple[int, ...]:
    """The steps of each call that together train `steps`: whole calls and a remainder."""
    whole, rest = divmod(steps, per_call)
    return (per_call,) * whole + ((rest,) if rest else ())


EVALUATOR = "evaluator"
"""The role of tasks outside the cluster that evaluate checkpoints."""
INHERITED = "TFDIST_INHERITED"
"""Set for a leading task of the built-in training whose peers have launchers of their own."""
XLA_CACHE = "--tf_xla_persistent_cache_directory"
"""The flag in TF_XLA_FLAGS that names the folder in which TensorFlow keeps XLA's compiled programs."""


class Architecture(StrEnum):
    """The built-in models; each is a file in architectures/."""

    MOBILENET_V2 = "mobilenet_v2"
    TINY = "tiny"


class Optimizer(StrEnum):
    """The optimizers of the built-in training."""

    ADAM = "adam"
    SGD = "sgd"


@dataclass(frozen=True)
class TrainingSpec(StrategyChoice):
    """A strategy and the training to run under it, with nothing left to decide.

    `steps` counts all training steps of the job, of which the first `warmup_steps` are not timed. In a bench, turns
    decide how long it trains. Under parameter-server, and between-graph without --sync, a step is that of one worker.
    """

    VARIABLE: ClassVar[str] = "TFDIST_SPEC"

    model: Architecture = Architecture.MOBILENET_V2
    alpha: float = 1.0
    image_size: int = 224
    """Side of the square images, pixels."""
    classes: int = 1000
    bn_momentum: float = 0.999
    batch_size: PositiveInt = 64
    """Examples per replica and step."""
    dataset: str = "synthetic"
    data_dir: str | None = None
    shuffle: int = 1024
    """Shuffle buffer, examples."""
    steps: int = 100
    examples: int | None = None
    """Train until this many examples of all workers together, instead of `steps`, which is then only an estimate: set
    when a restart changes the number of workers."""
    epochs: int | None = None
    """If set, `steps` was computed from it."""
    learning_rate: float = 0.001
    optimizer: Optimizer = Optimizer.ADAM
    precision: Precision = Precision.FLOAT32
    gradient_dtype: GradientDtype = GradientDtype.FLOAT32
    ema: float | None = None
    """Decay of the moving averages of the weights, with which the model is evaluated; None: no averages."""
    api: Api = Api.LOOP
    xla: bool = False
    meta_optimizer: bool = True
    """TensorFlow rewrites each graph before its first step (Grappler)."""
    seed: int = 0
    steps_per_window: int = 10
    steps_per_call: int = 1
    """Steps in one call of a tf.function (parameter-server: in one scheduled closure). Windows are whole calls."""
    warmup_steps: int = 10
    evaluate: bool = False
    """Measure accuracy on the held-out part of the data set after training."""
    step_times: bool | None = None
    """Read the clock in each step (api loop). In turns: report when its local gradients were ready, and when it was
    done. Else: report how long this worker needed, so that the launcher can name one for which the others wait. None:
    see `training.leading.watched`."""
    slow_worker: int | None = None
    """Index of a worker (in one process: of a replica) that is made slower, to see what a straggler costs."""
    slow_ms: float = 0.0
    """Milliseconds that each of its steps takes longer."""
    slow_factor: float = 1.0
    """Its gradients take this many times as long."""
    evaluate_turns: bool = False
    """Measure loss and accuracy on the held-out part after each turn of a bench, outside of its timing."""
    count_updates: bool | None = None
    """Count the updates of each asynchronous worker by their staleness. None: see `training.leading.watched`."""

    @property
    def global_batch_size(self) -> int:
        """Examples in one synchronous step of the whole job.

        Asynchronous and independent workers step on their own: `batch_size * devices` examples each. The gradients of
        backup workers do not count.
        """
        return self.batch_size * (self.replicas - self.backup_workers)

    @property
    def update_examples(self) -> int:
        """Examples of one update in graph mode: of all workers that step together, or of one that steps alone."""
        return self.global_batch_size if self.synchronous else self.batch_size
