"""What is trained and how: one frozen record, complete before any process starts, that travels as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.strategies.catalog import Api, Communication, CrossDevice, Keras, Placement, StrategyName

FORMAT = 1
SPEC_VARIABLE = "TFDIST_SPEC"
"""The environment variable in which a task finds its spec."""


@dataclass(frozen=True)
class TrainingSpec:
    """A training, with nothing left to decide.

    Sizes: `batch_size` is per replica; `steps` counts every training step of the job, of which the first `warmup_steps`
    (or more, until the pace is steady) are not timed. Under parameter-server a step is one scheduled step of a worker.
    """

    strategy: StrategyName = StrategyName.ONE_DEVICE
    workers: int = 1
    ps: int = 0
    devices: int = 1
    """Devices (replicas) of each worker process."""
    cores_per_device: int | None = 1
    """CPU cores behind each virtual CPU device; None leaves the cores alone."""
    gpus: bool = False
    """The devices are GPUs."""
    communication: Communication = Communication.AUTO
    cross_device: CrossDevice = CrossDevice.AUTO
    packs: int | None = None
    """num_packs of NCCL and hierarchical-copy; None is TensorFlow's default (1)."""
    bytes_per_pack: int | None = None
    """CommunicationOptions.bytes_per_pack; None lets TensorFlow decide."""
    timeout_collective_s: float | None = None
    """CommunicationOptions.timeout_seconds; None waits for ever."""
    variable_partitioner: str = "none"
    """none, fixed:N, min-size:BYTES or max-size:BYTES."""
    placement: Placement = Placement.ROUND_ROBIN

    model: str = "mobilenet_v2"
    alpha: float = 1.0
    image_size: int = 224
    """Side of the square images, pixels."""
    classes: int = 1000
    bn_momentum: float = 0.999
    batch_size: int = 64
    """Examples per replica and step."""
    dataset: str = "synthetic"
    data_dir: str | None = None
    shuffle: int = 1024
    """Shuffle buffer, examples."""
    steps: int = 100
    epochs: int | None = None
    """If set, `steps` was computed from it."""
    learning_rate: float = 0.001
    optimizer: str = "adam"
    precision: str = "float32"
    keras: Keras = Keras.TWO
    api: Api = Api.LOOP
    xla: bool = False
    seed: int = 0
    steps_per_window: int = 10
    warmup_steps: int = 10
    evaluate: bool = False
    """Measure accuracy on the data set's held-out part after training."""

    @property
    def replicas(self) -> int:
        """Replicas of the whole job: each computes gradients of its own batch in every step. Of a TPU it says 1."""
        return self.workers * self.devices

    @property
    def global_batch_size(self) -> int:
        """Examples in one synchronous step of the whole job.

        Asynchronous and independent workers step on their own: `batch_size * devices` examples each.
        """
        return self.batch_size * self.replicas

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    def to_env(self) -> dict[str, str]:
        """The environment variable by which a task is told its spec."""
        return {SPEC_VARIABLE: json.dumps(self.to_json())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TrainingSpec":
        """The spec that `to_json` wrote.

        Raises:
            TfdistError: another format version, an unknown key, or a value outside its choices.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a training spec of format {data.get('format')!r}: this tfdist reads format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise TfdistError(f"a training spec with the unknown key {unknown[0]!r}")
        try:
            choices = {name: choice(values[name]) for name, choice in CHOICES.items() if name in values}
        except ValueError as error:
            raise TfdistError(f"a training spec with a value outside its choices: {error}") from None
        return cls(**{**values, **choices})


CHOICES: Mapping[str, type[Enum]] = {
    "strategy": StrategyName,
    "communication": Communication,
    "cross_device": CrossDevice,
    "placement": Placement,
    "keras": Keras,
    "api": Api,
}
"""The fields that are closed choices, by name."""
