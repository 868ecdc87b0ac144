"""What a leading task sets before it builds its model."""

import pytest
import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.graph.sessions import open_session
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import leading


@pytest.mark.parametrize("wanted", [False, True])
def test_the_meta_optimizer_runs_only_if_the_training_has_it(wanted, monkeypatch):
    spec = TrainingSpec(meta_optimizer=wanted)
    monkeypatch.setattr(leading, "build", lambda spec: tf.distribute.get_strategy())
    leading.connect(spec, Task("worker", 0))
    assert tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"] is not wanted

    class Server:
        target = ""

    session = open_session(spec, Server, tf.Graph())
    assert session._config.graph_options.rewrite_options.disable_meta_optimizer is not wanted
