"""Options without effect are refused; what may surprise is a warning."""

from dataclasses import replace

import pytest

from tfdist.jobs.checks import (
    check,
    check_combinations,
    check_effect,
    check_step_times,
    check_straggler,
    warnings_of,
)
from tfdist.jobs.presets import resolve
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.strategies.options import Api, CrossDevice, Keras, Precision, StrategyName

CPU = Machine((0, 1), ())
TWO = {"strategy": StrategyName.MULTI_WORKER, "workers": 2}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slow_ms": 30.0}, "slow_ms and slow_factor have no effect without slow_worker"),
        ({"slow_worker": 1}, "slow_worker = 1 is not slower"),
        ({"slow_worker": 2, "slow_ms": 30.0}, "slow_worker = 2: must be 0 to 1"),
        ({"slow_worker": -1, "slow_factor": 2.0}, "slow_worker = -1: must be 0 to 1"),
        ({"slow_worker": 1, "slow_ms": -1.0}, "slow_ms = -1: must be 0 or more"),
        ({"slow_worker": 1, "slow_factor": 0.5}, "slow_factor = 0.5: must be 1 or more"),
        ({"slow_worker": 1, "slow_factor": float("nan")}, "slow_factor = nan: must be 1 or more"),
        ({"slow_worker": 1, "slow_ms": 30.0, "api": Api.FIT}, "slow_worker with api = fit"),
    ],
)
def test_a_straggler_without_effect_is_refused(values, message):
    with pytest.raises(TfdistError) as raised:
        check_straggler(TrainingSpec(**{**TWO, **values}))
    assert str(raised.value).startswith(message)


def test_in_one_process_the_replicas_are_counted():
    mirrored = {"strategy": StrategyName.MIRRORED, "devices": 2, "slow_ms": 30.0}
    check_straggler(TrainingSpec(**mirrored, slow_worker=1))
    with pytest.raises(TfdistError, match="one of 2"):
        check_straggler(TrainingSpec(**mirrored, slow_worker=2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"api": Api.FIT}, "step_times with api = fit"),
        ({"steps_per_call": 2}, "step_times with steps_per_call = 2"),
        ({"strategy": StrategyName.PARAMETER_SERVER, "ps": 1}, "step_times: parameter-server has no steps"),
        ({"strategy": StrategyName.TPU, "workers": 1}, "step_times: TensorFlow cannot read the clock"),
    ],
)
def test_step_times_without_a_loop_of_steps_are_refused(values, message):
    with pytest.raises(TfdistError) as raised:
        check_step_times(TrainingSpec(**{**TWO, "step_times": True, **values}))
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_decay_outside_of_0_to_1_is_refused(decay):
    with pytest.raises(TfdistError, match=r"--set ema=.*: must be more than 0 and less than 1"):
        check(TrainingSpec(ema=decay), {}, CPU)


def test_a_training_that_is_too_short_for_its_averages_gets_a_warning():
    check(TrainingSpec(ema=0.999), {}, CPU)
    (text,) = warnings_of(TrainingSpec(ema=0.999, steps=500, evaluate=True), CPU)
    assert text.startswith("--set ema=0.999: after 500 steps the averages are 61% initial weights")
    for good in ({"ema": 0.999, "steps": 5000, "evaluate": True}, {"ema": 0.999}, {"steps": 5, "evaluate": True}):
        assert list(warnings_of(TrainingSpec(**good), CPU)) == []


def test_alpha_scales_the_tiny_model_too():
    assert resolve({"model": "tiny", "alpha": 0.5}, CPU, "smoke").spec.alpha == 0.5


@pytest.mark.parametrize(
    ("spec", "chosen", "message"),
    [
        (
            TrainingSpec(model=Architecture.TINY),
            {"bn_momentum": 0.5},
            "--set bn_momentum=0.5 has no effect with --model tiny",
        ),
        (TrainingSpec(), {"shuffle": 8}, "--set shuffle=8 has no effect with --dataset synthetic"),
        (TrainingSpec(), {"data_dir": "d"}, "--set data_dir=d has no effect with --dataset synthetic"),
        (TrainingSpec(dataset="digits"), {"data_dir": "d"}, "--set data_dir=d has no effect with --dataset digits"),
        (TrainingSpec(dataset="folder:x"), {"data_dir": "d"}, "--set data_dir=d has no effect with --dataset folder:x"),
        (TrainingSpec(gpus=True), {"cores_per_device": 1}, "--set cores_per_device=1 has no effect with a GPU"),
    ],
)
def test_an_option_without_effect_is_refused(spec, chosen, message):
    with pytest.raises(TfdistError) as raised:
        check_effect(spec, chosen)
    assert str(raised.value) == f"{message}: omit it"


@pytest.mark.parametrize(
    ("dataset", "chosen"),
    [
        ("tfds:cats_vs_dogs", {"data_dir": "d", "shuffle": 8}),
        ("digits", {"shuffle": 8, "bn_momentum": 0.5, "cores_per_device": 1}),
    ],
)
def test_an_option_with_an_effect_is_accepted(dataset, chosen):
    assert check_effect(TrainingSpec(dataset=dataset), chosen) is None


@pytest.mark.parametrize(("model", "count"), [(Architecture.MOBILENET_V2, 1), (Architecture.TINY, 0)])
def test_only_the_depthwise_model_warns_about_xla_on_a_cpu(model, count):
    assert len(list(warnings_of(TrainingSpec(model=model, xla=True), CPU))) == count


def refused(spec: TrainingSpec) -> str:
    """Why these values cannot be combined; empty if they can."""
    try:
        check_combinations(spec)
    except TfdistError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "values",
    [{"strategy": StrategyName.MULTI_WORKER}, {"strategy": StrategyName.PARAMETER_SERVER, "ps": 1}],
)
def test_a_worker_without_gpus_has_one_device(values):
    two = TrainingSpec(**values, workers=2, devices=3)
    assert refused(two).startswith("--devices 3: without GPUs ")
    assert refused(two).endswith(" uses one device of each worker, not 3; omit --devices and use --workers 6")
    assert refused(replace(two, gpus=True)) == refused(replace(two, devices=1)) == ""


@pytest.mark.parametrize("strategy", [StrategyName.MIRRORED, StrategyName.CENTRAL_STORAGE])
def test_one_process_makes_a_replica_on_each_virtual_device(strategy):
    assert refused(TrainingSpec(strategy=strategy, devices=2)) == ""


def test_float16_needs_loss_scaling_on_every_replica():
    mirrored = TrainingSpec(strategy=StrategyName.MIRRORED, devices=2, precision=Precision.MIXED_FLOAT16)
    servers = TrainingSpec(**TWO, precision=Precision.MIXED_FLOAT16)
    servers = replace(servers, strategy=StrategyName.PARAMETER_SERVER, ps=1)
    three = replace(mirrored, keras=Keras.THREE)
    for good in (mirrored, replace(three, devices=1), replace(three, precision=Precision.MIXED_BFLOAT16),
                 replace(servers, precision=Precision.MIXED_BFLOAT16)):  # fmt: skip
        assert refused(good) == ""
    assert refused(three).startswith("--keras 3 --precision mixed_float16: Keras 3 checks only the first replica")
    assert refused(replace(three, strategy=StrategyName.INDEPENDENT, devices=1, workers=2)) == ""
    assert refused(servers) == (
        "--keras 2 --precision mixed_float16: tf_keras does not scale the loss for float16 under parameter-server; "
        "use --precision mixed_bfloat16"
    )


def test_fit_of_keras_3_trains_one_step_in_a_call_of_several_replicas():
    fit = TrainingSpec(strategy=StrategyName.MIRRORED, devices=2, keras=Keras.THREE, api=Api.FIT, steps_per_call=2)
    assert refused(fit).startswith("--keras 3 --api fit --steps-per-call 2: Keras 3's fit fails with several steps")
    each_alone = {"strategy": StrategyName.INDEPENDENT, "devices": 1, "workers": 2}
    for good in ({"devices": 1}, {"keras": Keras.TWO}, {"api": Api.LOOP}, {"steps_per_call": 1}, each_alone):
        assert refused(replace(fit, **good)) == ""


@pytest.mark.parametrize("devices", range(1, 8))
def test_hierarchical_copy_drops_a_gradient_of_an_odd_number_of_devices(devices):
    spec = TrainingSpec(strategy=StrategyName.MIRRORED, devices=devices, cross_device=CrossDevice.HIERARCHICAL_COPY)
    odd = devices in (3, 5, 7)
    assert (f" the gradients of one of {devices} devices " in refused(spec)) is odd
    assert (f"; use --devices {devices - 1} or {devices + 1}, or --cross-device auto" in refused(spec)) is odd
    assert bool(refused(spec)) is odd
    assert refused(replace(spec, cross_device=CrossDevice.REDUCTION_TO_ONE)) == ""


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("strategy", [StrategyName.CENTRAL_STORAGE, StrategyName.PARAMETER_SERVER])
def test_xla_needs_the_variables_on_its_device(strategy, api):
    spec = TrainingSpec(strategy=strategy, workers=2, ps=1, xla=True, api=api)
    assert (
        refused(spec) == f"--xla --strategy {strategy}: XLA compiles no step whose variables are elsewhere; omit --xla"
    )


@pytest.mark.parametrize("strategy", [StrategyName.MIRRORED, StrategyName.MULTI_WORKER])
def test_xla_does_not_compile_the_exchange_that_is_inside_of_fit(strategy):
    spec = TrainingSpec(strategy=strategy, xla=True, api=Api.FIT)
    assert refused(spec).startswith(f"--xla --api fit --strategy {strategy}: fit compiles the exchange of gradients")
    check_combinations(TrainingSpec(strategy=StrategyName.ONE_DEVICE, xla=True, api=Api.FIT))
