"""Options of the all-reduce are refused where TensorFlow would ignore them."""

from dataclasses import replace

import pytest

from tfdist.jobs.exchange_checks import check_exchange, uses_nccl
from tfdist.jobs.presets import resolve, resolve_strategy
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Communication, CrossDevice, GradientDtype, Keras, StrategyName

CPU = Machine((0, 1), ())
GPUS = Machine(tuple(range(32)), ("A100",) * 2)
MIRRORED = TrainingSpec(strategy=StrategyName.MIRRORED, devices=2)
WORKERS = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2)
LOSSY = (GradientDtype.BFLOAT16, GradientDtype.FLOAT16)


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("strategy", CATALOG)
def test_only_strategies_with_an_all_reduce_take_a_gradient_type(strategy, dtype):
    choices = {"strategy": str(strategy), "gradient_dtype": str(dtype)}
    if CATALOG[strategy].all_reduce:
        assert resolve(choices, CPU, "smoke").spec.gradient_dtype is dtype
    else:
        with pytest.raises(TfdistError, match=f"--gradient-dtype {dtype} has no effect under --strategy {strategy}"):
            resolve(choices, CPU, "smoke")


def test_float32_is_the_default_everywhere():
    assert (
        resolve({"strategy": "one-device", "gradient_dtype": "float32"}, CPU, "smoke").spec
        == resolve({"strategy": "one-device"}, CPU, "smoke").spec
    )


@pytest.mark.parametrize("spec", [replace(MIRRORED, devices=1), replace(WORKERS, workers=1)])
def test_one_replica_exchanges_nothing(spec):
    with pytest.raises(TfdistError, match="no effect with 1 replica"):
        check_exchange(replace(spec, gradient_dtype=GradientDtype.BFLOAT16))


@pytest.mark.parametrize("spec", [MIRRORED, WORKERS])
def test_the_optimizers_of_keras_3_keep_their_all_reduce(spec):
    three = replace(spec, keras=Keras.THREE)
    check_exchange(three)
    with pytest.raises(TfdistError, match=r"--keras 3 --gradient-dtype float16: .*; use --keras 2"):
        check_exchange(replace(three, gradient_dtype=GradientDtype.FLOAT16))


def test_bytes_per_pack_needs_tf_keras_under_mirrored_only():
    check_exchange(replace(WORKERS, keras=Keras.THREE, bytes_per_pack=1))  # an option of the strategy
    with pytest.raises(TfdistError, match="--keras 3 --bytes-per-pack 1: "):
        check_exchange(replace(MIRRORED, keras=Keras.THREE, bytes_per_pack=1))


@pytest.mark.parametrize(
    "nccl",
    [
        replace(MIRRORED, gpus=True),
        replace(MIRRORED, gpus=True, cross_device=CrossDevice.NCCL),
        replace(WORKERS, gpus=True),
        replace(WORKERS, gpus=True, communication=Communication.NCCL),
    ],
)
def test_nccl_exchanges_no_bfloat16(nccl):
    assert uses_nccl(nccl)
    check_exchange(replace(nccl, gradient_dtype=GradientDtype.FLOAT16))
    with pytest.raises(TfdistError, match=r"--gradient-dtype bfloat16: .* NCCL .*float16"):
        check_exchange(replace(nccl, gradient_dtype=GradientDtype.BFLOAT16))


@pytest.mark.parametrize(
    "other",
    [
        MIRRORED,
        WORKERS,
        replace(MIRRORED, gpus=True, cross_device=CrossDevice.REDUCTION_TO_ONE),
        replace(WORKERS, gpus=True, communication=Communication.RING),
        replace(MIRRORED, gpus=True, logical_gpus=2),
    ],
)
def test_other_all_reduces_exchange_bfloat16(other):
    check_exchange(replace(other, gradient_dtype=GradientDtype.BFLOAT16))


@pytest.mark.parametrize(
    ("cross_device", "packs", "bytes_per_pack"),
    [
        ("auto", False, True),
        ("nccl", True, False),
        ("hierarchical-copy", True, False),
        ("reduction-to-one", False, False),
    ],
)
def test_each_all_reduce_takes_the_option_that_splits_its_gradients(cross_device, packs, bytes_per_pack):
    choices = {"strategy": "mirrored", "cross_device": cross_device}
    for option, acts in (("packs", packs), ("bytes_per_pack", bytes_per_pack)):
        if acts:
            assert getattr(resolve({**choices, option: 2}, GPUS, "cpu").spec, option) == 2
        else:
            with pytest.raises(TfdistError, match=f"2 has no effect with --cross-device {cross_device}"):
                resolve({**choices, option: 2}, GPUS, "cpu")


def test_a_program_under_mirrored_would_ignore_bytes_per_pack():
    assert resolve_strategy({"strategy": "multiworker", "bytes_per_pack": 1}, CPU).spec.bytes_per_pack == 1
    with pytest.raises(TfdistError, match=r"--bytes-per-pack 1: .* all_reduce in the program"):
        resolve_strategy({"strategy": "mirrored", "bytes_per_pack": 1}, CPU)
