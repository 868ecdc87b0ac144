"""Checks of the options that TensorFlow passes to the all-reduce, and of the replicas that it sums.

Source of what acts where: cross_device_ops.py of TensorFlow 2.21 and 2.22. CollectiveAllReduce (multiworker, and
mirrored with auto) splits gradients by `bytes_per_pack`, NcclAllReduce and HierarchicalCopyAllReduce into `num_packs`,
and ReductionToOneDevice not at all.
"""

from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, Exchange, gradient_dtype_refusal, refuse
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import CrossDevice, GradientDtype, Keras, Precision, StrategyName


def check_backup_workers(choice: StrategyChoice) -> None:
    """Refuse backup workers of asynchronous workers, and as many as there are workers.

    Raises:
        TfdistError: one of these.
    """
    backup = f"--set backup_workers={choice.backup_workers}"
    if choice.backup_workers and not choice.sync:
        raise TfdistError(f"{backup}: asynchronous workers do not wait for each other; add --sync, or omit it")
    if choice.backup_workers >= choice.workers:
        raise TfdistError(
            f"{backup}: a step needs the gradients of at least one of the {choice.workers} workers; use "
            f"{choice.workers - 1} or fewer"
        )


def check_graph(spec: TrainingSpec) -> None:
    """Refuse options that a training in graph mode would ignore.

    Raises:
        TfdistError: one of them is set.
    """
    if not CATALOG[spec.strategy].graph:
        return
    refused = (
        (f"--precision {spec.precision}", spec.precision is not Precision.FLOAT32, "it trains in float32"),
        ("--xla", spec.xla, "its graphs are not compiled"),
        (f"--steps-per-call {spec.steps_per_call}", spec.steps_per_call > 1, "each step is a call of a session"),
        ("step_times", spec.step_times, "its sessions do not report the times of steps"),
    )
    for option, chosen, reason in refused:
        if chosen:
            raise TfdistError(f"{option} --strategy {spec.strategy}: {reason}; omit it")


_IN_PACKS = (CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY)


def check_all_reduce(choice: StrategyChoice) -> None:
    """Refuse options that the all-reduce would ignore."""
    ignored = f"has no effect with --cross-device {choice.cross_device}: omit it, or use"
    if choice.packs is not None and choice.cross_device not in _IN_PACKS:
        others = ", or --bytes-per-pack" if choice.cross_device is CrossDevice.AUTO else ""
        raise TfdistError(f"--set packs={choice.packs} {ignored} nccl or hierarchical-copy{others}")
    if choice.bytes_per_pack is not None and choice.cross_device is not CrossDevice.AUTO:
        packs = ", or --set packs" if choice.cross_device in _IN_PACKS else ""
        raise TfdistError(f"--bytes-per-pack {choice.bytes_per_pack} {ignored} auto{packs}")


def check_program(choice: StrategyChoice) -> None:
    """Refuse what only the built-in training can do, for a custom program.

    Raises:
        TfdistError: a strategy without tf.distribute, or an option that would be ignored.
    """
    row = CATALOG[choice.strategy]
    if row.graph:
        raise TfdistError(
            f"--strategy {choice.strategy}: a COMMAND gets a strategy of tf.distribute, and this is none; use "
            f"--strategy {StrategyName.PARAMETER_SERVER}, whose TF_CONFIG is the same, or omit the COMMAND"
        )
    if row.all_reduce == "cross_device" and choice.bytes_per_pack is not None:
        raise TfdistError(
            f"--bytes-per-pack {choice.bytes_per_pack}: {row.tf_name} has no such option, so a COMMAND would ignore "
            "it; omit it, and pass CommunicationOptions(bytes_per_pack=...) to all_reduce in the program"
        )


def check_exchange(spec: TrainingSpec) -> None:
    """Refuse options of the exchange that this Keras, this all-reduce or a single replica would ignore."""
    dtype = f"--gradient-dtype {spec.gradient_dtype}"
    casts = spec.gradient_dtype is not GradientDtype.FLOAT32
    if casts and spec.replicas == 1:
        raise TfdistError(f"{dtype} has no effect with 1 replica, which exchanges nothing: omit it")
    # tf_keras' optimizers take a `gradient_aggregator`, Keras 3's call a private method
    packs = CATALOG[spec.strategy].all_reduce == "cross_device" and spec.bytes_per_pack is not None
    if spec.keras is Keras.THREE and (casts or packs):
        option = dtype if casts else f"--bytes-per-pack {spec.bytes_per_pack}"
        reason = "Keras 3's optimizers do not let a program replace their all-reduce"
        raise TfdistError(f"--keras {spec.keras} {option}: {reason}; use --keras 2")
    refuse(gradient_dtype_refusal(spec.gradient_dtype, uses_nccl(spec)), dtype)


def uses_nccl(choice: StrategyChoice) -> bool:
    """Whether gradients may go over NCCL: chosen, or the default between whole GPUs."""
    option = CATALOG[choice.strategy].all_reduce
    used = option and getattr(choice, option)
    return used == "nccl" or (used == "auto" and choice.gpus and choice.logical_gpus is None)


def several(spec: TrainingSpec) -> bool:
    """Whether several replicas train one model."""
    return spec.replicas > 1 and spec.exchange is not Exchange.NONE


def check_precision(spec: TrainingSpec) -> None:
    """Refuse float16 where this Keras does not train the replicas safely in it.

    Source: tf_keras' `strategy_supports_loss_scaling` lists the strategies with loss scaling; with Keras 3, 12 of 120
    trainings of several replicas ended in NaN, with tf_keras none.
    """
    if spec.precision is not Precision.MIXED_FLOAT16:
        return
    option = f"--keras {spec.keras} --precision {spec.precision}"
    if spec.keras is Keras.TWO and not CATALOG[spec.strategy].scales_loss:
        raise TfdistError(
            f"{option}: tf_keras does not scale the loss for float16 under {spec.strategy}; "
            "use --precision mixed_bfloat16"
        )
    if spec.keras is Keras.THREE and several(spec):
        raise TfdistError(
            f"{option}: Keras 3 checks only the first replica for float16 overflows, so the loss can become NaN; "
            "use --precision mixed_bfloat16, or --keras 2"
        )


def check_replicas(choice: StrategyChoice, odd_number: type[TfdistError] = TfdistError) -> None:
    """Refuse devices on which no replica runs, or whose gradients are not summed. `odd_number`: raised for the latter.

    Source: without a GPU MultiWorkerMirroredStrategy uses `CPU:0` only; ParameterServerStrategy counts GPUs.
    aggregate_gradients_using_hierarchical_copy in TensorFlow's cross_device_utils.py sums two groups of `devices // 2`
    devices. Devices with the gradients 1, 10, 100 got 11.
    """
    devices = choice.devices
    row = CATALOG[choice.strategy]
    if devices > 1 and not (choice.gpus or row.many_cpu_devices):
        raise MissingHardwareError(
            f"--devices {devices}: without GPUs {row.tf_name} uses one device of each worker, not {devices}; "
            f"omit --devices and use --workers {choice.replicas}"
        )
    if choice.cross_device is CrossDevice.HIERARCHICAL_COPY and devices % 2 and devices > 1:
        raise odd_number(
            f"--cross-device {choice.cross_device} --devices {devices}: TensorFlow's HierarchicalCopyAllReduce drops "
            f"the gradients of one of {devices} devices (of any odd number above 1); use --devices {devices - 1} or "
            f"{devices + 1}, or --cross-device auto or reduction-to-one"
        )
