"""`tfdist.measure.Callback` in a real fit, alone and with a launcher at the other end of the pipes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os
import numpy as np
import tensorflow as tf
import tfdist.measure

data = tf.data.Dataset.from_tensor_slices((np.zeros((24, 4), "float32"), np.zeros((24,), "int32"))).batch(8)
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callback = tfdist.measure.Callback()
calls, done = [], callback.on_train_batch_end
def observed(batch, logs=None):
    calls.append(type(logs.get("loss")).__name__)
    done(batch, logs)
callback.on_train_batch_end = observed
history = model.fit(data, epochs=tfdist.measure.epochs(2), callbacks=[callback], verbose=0)
print(len(history.epoch), *calls)
if "TWICE" in os.environ:
    model.fit(data, epochs=1, callbacks=[tfdist.measure.Callback()], verbose=0)
"""
TURNS = [{"windows": 1, "steps": 3}, {"windows": 2, "steps": 4}, {"windows": 0, "steps": 0}]


def fit(releases, keras="1", program=PROGRAM, **environment):
    """The finished program and its events; `releases` None: without a launcher."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_CONFIG"))}
    events, emit = os.pipe()
    barrier, release = os.pipe()
    environment["PYTHONFAULTHANDLER"] = "1"  # should TensorFlow crash
    launched = {"TFDIST_EVENTS_FD": str(emit), "TFDIST_BARRIER_FD": str(barrier), "TFDIST_TURNS": "1"}
    for line in releases or ():
        os.write(release, json.dumps(line).encode() + b"\n")
    os.close(release)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "TF_USE_LEGACY_KERAS": keras, **(launched if releases is not None else {}), **environment},
        pass_fds=[emit, barrier],
        capture_output=True,
        text=True,
    )
    os.close(emit)
    os.close(barrier)
    with os.fdopen(events) as lines:
        return done, [json.loads(line) for line in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("keras", ["1", pytest.param("0", marks=pytest.mark.thorough)], ids=["tf_keras", "keras"])
def test_a_step_of_fewer_batches_than_the_others_does_not_count(keras):
    several = PROGRAM.replace("from_logits=True))", "from_logits=True), steps_per_execution=2)")
    done, events = fit(TURNS, keras, program=several)
    assert done.returncode == 0, done.stderr
    turns = [event["windows"] for event in events if event["event"] == "turn"]
    assert [[(window["steps"], window["examples"]) for window in turn] for turn in turns] == [[(3, 48)], [(4, 64)] * 2]


@pytest.mark.thorough
@pytest.mark.parametrize("keras", ["1", "0"], ids=["tf_keras", "keras"])
def test_fit_is_measured_in_turns_and_ends_with_them(keras):
    done, events = fit(TURNS, keras, TWICE="1")
    assert done.returncode == 0, done.stderr
    turns = [event["windows"] for event in events if event["event"] == "turn"]
    assert [[(window["steps"], window["examples"]) for window in turn] for turn in turns] == [[(3, 24)], [(4, 32)] * 2]
    assert all(window["loss"] > 0 for turn in turns for window in turn)
    first, last = (event["record"] for event in events if event["event"] == "record")
    assert (first["updates_applied"], last["updates_applied"]) == (5, 5 + 4 + 9)
    assert last["replicas"] == 1
    epochs, *losses = done.stdout.split()
    assert (epochs, len(losses)) == ("6", 18)
    if keras == "1":
        assert set(losses) == {"EagerTensor"}, "no step waits for its metrics"


COUNTS_ITERATORS = (
    PROGRAM
    + """
import gc
gc.collect()
print("kept", sum(tf.distribute.DistributedIterator in type(each).__mro__ for each in gc.get_objects()))
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize("keras", ["1", pytest.param("0", marks=pytest.mark.thorough)], ids=["tf_keras", "keras"])
def test_after_the_last_turn_iterators_are_left_to_the_end_of_the_process(keras):
    done, _ = fit(TURNS, keras, COUNTS_ITERATORS)
    assert done.stdout.splitlines()[-1] == "kept 1", done.stderr


@pytest.mark.parametrize("keras", ["1", pytest.param("0", marks=pytest.mark.thorough)], ids=["tf_keras", "keras"])
def test_without_a_launcher_nothing_is_measured_and_no_iterator_is_left(keras):
    done, events = fit(None, keras, COUNTS_ITERATORS)
    calls = "" if keras == "1" else 6 * " float"  # tf_keras asks whether it wants to be called for each step
    assert done.stdout.splitlines() == [f"2{calls}", "kept 0"], done.stderr
    assert events == []


SLEEPS = PROGRAM.replace(
    "history = model.fit(",
    "import time\n"
    "class Sleep(tf.keras.callbacks.Callback):\n"
    "    def on_epoch_end(self, epoch, logs=None):\n"
    "        time.sleep(2)\n"
    "history = model.fit(",
).replace("callbacks=[callback]", "callbacks=[Sleep(), callback], validation_data=data")


@pytest.mark.thorough
@pytest.mark.parametrize("keras", ["1", "0"], ids=["tf_keras", "keras"])
def test_a_sleep_at_the_end_of_an_epoch_is_found_between_epochs(keras):
    done, events = fit([{"windows": 1, "steps": 1}, {"windows": 2, "steps": 3}, TURNS[-1]], keras, SLEEPS)
    assert done.returncode == 0, done.stderr
    (_, windows) = [event["windows"] for event in events if event["event"] == "turn"]
    assert [(window["steps"], window["epochs"]) for window in windows] == [(3, 1), (3, 1)]
    assert all(window["between_s"] > 2 > window["elapsed_s"] for window in windows)


@pytest.mark.thorough
def test_a_fit_that_ends_before_the_turns_is_an_error():
    done, _ = fit(TURNS, program=PROGRAM.replace("tfdist.measure.epochs(2)", "2"))
    assert done.returncode == 1
    assert "omit steps_per_epoch, or repeat() the data" in done.stderr
    assert "fit ended after 6 steps, before the bench did: use epochs=tfdist.measure.epochs(N)" in done.stderr


@pytest.mark.thorough
def test_a_model_that_counts_no_examples_needs_their_number():
    program = PROGRAM.replace(
        "    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])",
        "    class Own(tf.keras.Sequential):\n"
        "        def train_step(self, data):\n"
        "            return {'mine': tf.reduce_sum(data[0])}\n"
        "        metrics = []\n"
        "    model = Own([tf.keras.layers.Dense(2)])",
    )
    done, _ = fit(TURNS, program=program)
    assert "this model does not count its examples; pass examples=N" in done.stderr
    done, events = fit(TURNS, program=program.replace("Callback()", "Callback(examples=8)"))
    assert done.returncode == 0, done.stderr
    assert [event for event in events if event["event"] == "turn"][1]["windows"][0]["loss"] is None
