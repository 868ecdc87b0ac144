"""What a leading task sets before it builds its model."""

import pytest
import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.graph.sessions import open_session
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import leading
from tfdist.strategies.options import Api, StrategyName


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


MULTI = {"strategy": StrategyName.MULTI_WORKER, "workers": 2}
SERVERS = {"strategy": StrategyName.PARAMETER_SERVER, "workers": 2, "ps": 1}


@pytest.mark.parametrize(
    ("choices", "step_times", "count_updates"),
    [
        (MULTI, True, False),
        (SERVERS, False, True),
        ({**MULTI, "step_times": False}, False, False),
        ({**SERVERS, "count_updates": False}, False, False),
        ({**MULTI, "workers": 1}, False, False),
        ({**MULTI, "gpus": True}, False, False),
        ({**MULTI, "steps_per_call": 4}, False, False),
        ({**MULTI, "api": Api.FIT}, False, False),
        ({"strategy": StrategyName.INDEPENDENT, "workers": 2}, False, False),
        ({"strategy": StrategyName.BETWEEN_GRAPH, "workers": 2, "ps": 1}, False, False),
        ({"strategy": StrategyName.MIRRORED, "devices": 2}, False, False),
    ],
)
def test_workers_report_what_tells_a_slow_one_outside_of_turns(choices, step_times, count_updates, monkeypatch):
    found = leading.watched(TrainingSpec(**choices))
    assert (found.step_times, found.count_updates) == (step_times, count_updates)
    monkeypatch.setenv("TFDIST_TURNS", "1")
    found = leading.watched(TrainingSpec(**choices))
    assert (found.step_times, found.count_updates) == (False, False)
