"""Combinations of strategy, Keras, precision and devices that do not work with TensorFlow 2.21."""

from dataclasses import dataclass

from tfdist.launch.errors import TfdistError
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Api, CrossDevice, GradientDtype, Keras, Precision, StrategyName


@dataclass(frozen=True)
class Refusal:
    """Why a combination does not work, and what to use instead."""

    reason: str
    instead: str


def refuse(refusal: Refusal | None, options: str, error: type[TfdistError] = TfdistError) -> None:
    """Raise `error` for these command-line options unless the combination works."""
    if refusal is not None:
        raise error(f"{options}: {refusal.reason}; {refusal.instead}")


def keras_refusal(strategy: StrategyName, keras: Keras, api: Api) -> Refusal | None:
    """Why this Keras does not train under `strategy` through `api`; None if it does.

    Source: every combination was run with tensorflow 2.21.0, keras 3.15.1 and tf_keras 2.21.0.
    """
    row = CATALOG[strategy]
    problems = {**(row.keras3_problems if keras is Keras.THREE else {}), **row.api_problems}
    if api not in problems:
        return None
    other_keras = () if api in row.api_problems else ("--keras 2 (the default)",)
    works = (*other_keras, *(f"--api {other}" for other in Api if other not in problems))
    return Refusal(problems[api], f"use {' or '.join(works) or '--keras 2 --api loop'}")


def precision_refusal(strategy: StrategyName, keras: Keras, precision: Precision, replicas: int) -> Refusal | None:
    """Why this Keras does not train `replicas` replicas safely in this precision; None if it does.

    Source: tf_keras' `strategy_supports_loss_scaling` lists the strategies with loss scaling; with Keras 3, 12 of 120
    trainings of several replicas ended in NaN, with tf_keras none.
    """
    if precision is not Precision.MIXED_FLOAT16:
        return None
    if keras is Keras.TWO and not CATALOG[strategy].scales_loss:
        return Refusal(
            f"tf_keras does not scale the loss for float16 under {strategy}", "use --precision mixed_bfloat16"
        )
    if keras is Keras.THREE and replicas > 1:
        return Refusal(
            "Keras 3 checks only the first replica for float16 overflows, so the loss can become NaN",
            "use --precision mixed_bfloat16, or --keras 2",
        )
    return None


def devices_refusal(strategy: StrategyName, workers: int, devices: int, gpus: bool) -> Refusal | None:
    """Why a process of `strategy` does not run a replica on each of its devices; None if it does.

    Source: without a GPU MultiWorkerMirroredStrategy uses `CPU:0` only; ParameterServerStrategy counts GPUs.
    """
    row = CATALOG[strategy]
    if devices == 1 or gpus or row.many_cpu_devices:
        return None
    reason = f"without GPUs {row.tf_name} uses one device of each worker, not {devices}"
    return Refusal(reason, f"omit --devices and use --workers {workers * devices}")


def cross_device_refusal(cross_device: CrossDevice, devices: int) -> Refusal | None:
    """Why this all-reduce does not sum the gradients of `devices` devices; None if it does.

    Source: aggregate_gradients_using_hierarchical_copy in TensorFlow's cross_device_utils.py sums two groups of
    `devices // 2` devices. Devices with the gradients 1, 10, 100 got 11.
    """
    if cross_device is not CrossDevice.HIERARCHICAL_COPY or devices % 2 == 0 or devices == 1:
        return None
    return Refusal(
        f"TensorFlow's HierarchicalCopyAllReduce drops the gradients of one of {devices} devices "
        "(of any odd number above 1)",
        f"use --devices {devices - 1} or {devices + 1}, or --cross-device auto or reduction-to-one",
    )


def all_reduce_refusal(keras: Keras) -> Refusal | None:
    """Why tfdist cannot replace the all-reduce of this Keras' optimizers; None if it can.

    Source: tf_keras' optimizers take a `gradient_aggregator`, Keras 3's call a private method.
    """
    if keras is Keras.TWO:
        return None
    return Refusal("Keras 3's optimizers do not let a program replace their all-reduce", "use --keras 2")


def gradient_dtype_refusal(dtype: GradientDtype, nccl: bool) -> Refusal | None:
    """Why gradients are not exchanged in this type, over NCCL or not; None if they are.

    Source: the types of TensorFlow 2.21's NcclAllReduce operation, and of kValidDataTypes in nccl_manager.cc, which
    treats others as float32. Not run on hardware.
    """
    if not nccl or dtype is not GradientDtype.BFLOAT16:
        return None
    return Refusal(
        "TensorFlow's all-reduce over NCCL has no bfloat16",
        "use --gradient-dtype float16, or --communication ring, or --cross-device reduction-to-one",
    )


def steps_per_call_refusal(keras: Keras, api: Api, steps_per_call: int, replicas: int) -> Refusal | None:
    """Why this Keras does not train several steps in a call; None if it does.

    Source: with keras 3.15.1, `steps_per_execution` fails under MirroredStrategy.
    """
    if keras is Keras.TWO or api is Api.LOOP or steps_per_call == 1 or replicas == 1:
        return None
    return Refusal(
        "Keras 3's fit fails with several steps in a call of several replicas", "use --api loop or --keras 2"
    )
