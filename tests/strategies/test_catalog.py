"""What the catalog says of TensorFlow and Keras, asked of the installed versions; what the docs say of the catalog."""

import re
from pathlib import Path

import pytest

from tfdist.strategies.catalog import CATALOG, gradient_dtype_refusal, keras_refusal
from tfdist.strategies.options import Api, GradientDtype, Keras, StrategyName

STRATEGIES = Path(__file__).parents[2] / "docs" / "strategies.md"


def test_nccl_exchanges_the_types_of_tensorflows_operation():
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    (of_values,) = (each for each in op_def_registry.get("NcclAllReduce").attr if each.name == "T")
    types = {tf.as_dtype(each) for each in of_values.allowed_values.list.type}
    for dtype in GradientDtype:
        assert (gradient_dtype_refusal(dtype, nccl=True) is None) == (tf.as_dtype(dtype.value) in types)


@pytest.mark.parametrize("name", [StrategyName.ONE_DEVICE, StrategyName.MIRRORED, StrategyName.CENTRAL_STORAGE])
def test_tf_keras_scales_the_loss_where_the_catalog_says_so(name):
    import tensorflow as tf
    from tf_keras.src.mixed_precision.loss_scale_optimizer import strategy_supports_loss_scaling

    strategy = {
        StrategyName.ONE_DEVICE: lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
        StrategyName.MIRRORED: lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
        StrategyName.CENTRAL_STORAGE: lambda: tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]),
    }[name]()
    with strategy.scope():
        assert strategy_supports_loss_scaling() == CATALOG[name].scales_loss


def test_the_docs_say_which_strategies_remain_without_tf_keras():
    rows = re.findall(r"^\| (`--api loop`.*|neither) \| (.*) \|$", STRATEGIES.read_text(), re.MULTILINE)
    documented = {
        name.split()[0]: len(re.findall("--api", kinds)) for kinds, names in rows for name in names.split(", ")
    }
    works = {
        str(name): sum(keras_refusal(name, Keras.THREE, api) is None for api in Api)
        for name, row in CATALOG.items()
        if row.trains_built_in
    }
    assert documented == works
