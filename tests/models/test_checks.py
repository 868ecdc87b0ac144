"""Options without effect are refused; what may surprise is a warning."""

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.checks import check_effect, check_strategy, training_warnings
from tfdist.models.presets import resolve
from tfdist.models.spec import Architecture, TrainingSpec

CPU = Machine((0, 1), ())


def test_alpha_scales_the_tiny_model_too():
    assert resolve({"model": "tiny", "alpha": 0.5}, CPU, "smoke").spec.alpha == 0.5


@pytest.mark.parametrize(
    ("spec", "chosen", "message"),
    [
        (
            TrainingSpec(model=Architecture.TINY),
            {"bn_momentum": 0.5},
            "--bn-momentum 0.5 has no effect with --model tiny",
        ),
        (TrainingSpec(), {"shuffle": 8}, "--shuffle 8 has no effect with --dataset synthetic"),
        (TrainingSpec(), {"data_dir": "d"}, "--data-dir d has no effect with --dataset synthetic"),
        (TrainingSpec(dataset="digits"), {"data_dir": "d"}, "--data-dir d has no effect with --dataset digits"),
        (TrainingSpec(dataset="folder:x"), {"data_dir": "d"}, "--data-dir d has no effect with --dataset folder:x"),
        (TrainingSpec(gpus=True), {"cores_per_device": 1}, "--cores-per-device 1 has no effect with a GPU"),
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
    with pytest.raises(TfdistError, match="--variable-partitioner fixed:0"):
        check_strategy(TrainingSpec(variable_partitioner="fixed:0"), {}, Machine((0,), ()))


@pytest.mark.parametrize(("model", "count"), [(Architecture.MOBILENET_V2, 1), (Architecture.TINY, 0)])
def test_only_the_depthwise_model_warns_about_xla_on_a_cpu(model, count):
    warnings = training_warnings(TrainingSpec(model=model, xla=True), CPU)
    assert len(warnings) == count
