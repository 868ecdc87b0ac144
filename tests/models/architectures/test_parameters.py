import pytest

from tfdist.models.architectures.parameters import gradient_bytes, trained_parameters
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.strategies.options import GradientDtype


def test_mobilenet_v2_has_the_published_size() -> None:
    """3,538,984 of which 34,112 are moving statistics; 14.02 MB in float32."""
    assert trained_parameters(Architecture.MOBILENET_V2, 1.0, 1000) == 3_504_872


def test_its_gradients_are_exchanged_in_their_type() -> None:
    assert gradient_bytes(TrainingSpec()) == 14_019_488
    assert gradient_bytes(TrainingSpec(gradient_dtype=GradientDtype.BFLOAT16)) == 7_009_744


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "alpha", "classes"),
    [("mobilenet_v2", 0.35, 10), ("mobilenet_v2", 0.5, 7), ("mobilenet_v2", 0.75, 2), ("mobilenet_v2", 1.3, 1000),
     ("mobilenet_v2", 1.4, 3), ("tiny", 1.0, 10), ("tiny", 0.35, 4)],
)  # fmt: skip
def test_it_is_what_keras_builds(model: str, alpha: float, classes: int) -> None:
    from tfdist.models.architectures.build import build

    built = build(TrainingSpec(model=Architecture(model), alpha=alpha, classes=classes, image_size=32))
    trained = sum(int(weight.shape.num_elements()) for weight in built.trainable_weights)
    assert trained_parameters(Architecture(model), alpha, classes) == trained
