"""The strategy of a job with all its options: decided by the launcher, built by each task. No TensorFlow."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from tfdist.launch.errors import TfdistError
from tfdist.launch.typed_json import Count, PositiveInt, from_json, parse_json, shown
from tfdist.strategies.catalog import Exchange, exchange_of
from tfdist.strategies.options import Communication, CrossDevice, GpuThreads, Keras, Placement, StrategyName

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = 1


@dataclass(frozen=True)
class StrategyChoice:
    """A strategy with nothing left to decide. Tasks receive it as JSON in an environment variable."""

    VARIABLE: ClassVar[str] = "TFDIST_STRATEGY_CHOICE"
    """The environment variable that holds it."""

    strategy: StrategyName = StrategyName.ONE_DEVICE
    workers: PositiveInt = 1
    ps: Count = 0
    devices: PositiveInt = 1
    """Devices (replicas) of each worker process."""
    cores_per_device: PositiveInt | None = 1
    """CPU cores of each virtual CPU device; None: not pinned."""
    intra_op_threads: int | None = None
    """TensorFlow's intra-op threads of each task; None: one per pinned core, or TensorFlow's default if not pinned."""
    gpus: bool = False
    """The devices are GPUs."""
    logical_gpus: int | None = None
    """Parts into which the machine's one GPU is cut, for trying several devices: each device is one. None: not cut."""
    gpu_threads: GpuThreads = GpuThreads.GLOBAL
    memory_growth: bool = True
    """A task takes the memory of its GPUs as it needs it; False: nearly all of it at the start."""
    memory_limit_mb: int | None = None
    """MiB that a task takes of each of its GPUs at the start, and no more; None: no limit."""
    soft_placement: bool = True
    """TensorFlow may run an operation elsewhere than requested, if that device has no kernel for it."""
    log_device_placement: bool = False
    """TensorFlow logs on which device it places each operation."""
    communication: Communication = Communication.AUTO
    cross_device: CrossDevice = CrossDevice.AUTO
    packs: int | None = None
    """num_packs of mirrored's nccl and hierarchical-copy; None: TensorFlow's default (1)."""
    bytes_per_pack: int | None = None
    """CommunicationOptions.bytes_per_pack of multiworker and of mirrored's auto: an all-reduce starts once more than
    this many bytes of gradients are collected; None: one all-reduce for all gradients."""
    timeout_collective_s: float | None = None
    """CommunicationOptions.timeout_seconds; None: no limit."""
    variable_partitioner: str = "none"
    """none, fixed:N, min-size:BYTES or max-size:BYTES."""
    placement: Placement = Placement.ROUND_ROBIN
    sync: bool = False
    """Workers of between-graph wait for each other in each step."""
    backup_workers: Count = 0
    """Workers whose gradients a step does not wait for, whichever are slowest; only with `sync`."""
    keras: Keras = Keras.TWO

    @property
    def replicas(self) -> int:
        """Replicas of the whole job: each computes the gradients of its own batch. Always 1 on a TPU."""
        return self.workers * self.devices

    @property
    def exchange(self) -> Exchange:
        """How its replicas exchange gradients."""
        return exchange_of(self.strategy, self.sync)

    @property
    def synchronous(self) -> bool:
        """All replicas take a step together, or train alone; False: each worker steps when it is ready."""
        return self.exchange is not Exchange.ASYNC

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **vars(self)}  # plain values, so that nothing need be copied

    def to_env(self) -> dict[str, str]:
        """The environment variable that passes it to a task."""
        return {self.VARIABLE: json.dumps(self.to_json())}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Self | None":
        """The inverse of `to_env`; None if the variable is not set.

        Raises:
            TfdistError: another value.
        """
        text = environ.get(cls.VARIABLE)
        if text is None:
            return None
        try:
            return cls.from_json(parse_json(text))
        except (ValueError, AttributeError) as error:
            raise TfdistError(f"{cls.VARIABLE} is malformed ({error}): unset it") from None

    @classmethod
    def of_task(cls, start: str) -> "Self":
        """`from_env` in a task that needs it. `start`: how to start such a task, for the message.

        Raises:
            TfdistError: the variable is not set, or has another value.
        """
        choice = cls.from_env(os.environ)
        if choice is None:
            raise TfdistError(f"{cls.VARIABLE} is not set: {start}")
        return choice

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Self":
        """The inverse of `to_json`.

        Raises:
            TfdistError: another format version, an unknown key, or a value outside its choices.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a spec of format {shown(data.get('format'))}: this tfdist reads format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise TfdistError(f"a spec with the unknown key {shown(unknown[0])}")
        try:
            return from_json(values, cls)
        except ValueError as error:
            raise TfdistError(f"a spec with a wrong value: {error}") from None


def field_types(spec: type[Any]) -> Mapping[str, type]:
    """The type of each field of `spec`, without the None of optional ones: name -> type; `tuple` of any tuple."""
    hints: dict[str, Any] = get_type_hints(spec)
    types = {}
    for field in fields(spec):
        hint = hints[field.name]
        if get_origin(hint) in (Union, UnionType):
            (hint,) = set(get_args(hint)) - {NoneType}
        types[field.name] = get_origin(hint) or hint
    return types
