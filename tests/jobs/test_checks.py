"""Options without effect are refused; what may surprise is a warning."""

import pytest

from tfdist.jobs.checks import (
    check_effect,
    check_ema,
    check_step_times,
    check_straggler,
    check_strategy,
    ema_warnings,
    training_warnings,
)
from tfdist.jobs.presets import resolve
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.strategies.options import Api, StrategyName

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
        check_ema(TrainingSpec(ema=decay))


def test_a_training_that_is_too_short_for_its_averages_gets_a_warning():
    assert check_ema(TrainingSpec(ema=0.999)) is None
    (text,) = ema_warnings(TrainingSpec(ema=0.999, steps=500, evaluate=True))
    assert text.startswith("--set ema=0.999: after 500 steps the averages are 61% initial weights")
    assert ema_warnings(TrainingSpec(ema=0.999, steps=5000, evaluate=True)) == ()
    assert ema_warnings(TrainingSpec(ema=0.999, steps=500)) == ()
    assert ema_warnings(TrainingSpec(steps=5, evaluate=True)) == ()


CPU = Machine((0, 1), ())


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


def test_an_invalid_partitioner_is_refused():
    with pytest.raises(TfdistError, match="--set variable_partitioner=fixed:0"):
        check_strategy(TrainingSpec(variable_partitioner="fixed:0"), {}, Machine((0,), ()))


@pytest.mark.parametrize(("model", "count"), [(Architecture.MOBILENET_V2, 1), (Architecture.TINY, 0)])
def test_only_the_depthwise_model_warns_about_xla_on_a_cpu(model, count):
    warnings = training_warnings(TrainingSpec(model=model, xla=True), CPU)
    assert len(warnings) == count
