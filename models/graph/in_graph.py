"""In-graph replication: the chief builds one graph with a replica on each worker, whose servers run their parts."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.architectures.build import build as build_model
from tfdist.models.graph import inputs, optimizers, placement, replica, sessions
from tfdist.models.graph.inputs import Inputs
from tfdist.models.graph.replica import Replica
from tfdist.models.graph.variables import Variables, averages_of, variables_of
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class InGraph:
    """The graph, whose operations are for a session of the chief."""

    graph: tf.Graph
    inputs: tuple[Inputs, ...]
    """Inputs of each replica."""
    variables: Variables
    step: tf.Operation
    loss: tf.Tensor
    """Mean over the replicas."""
    used: tf.Tensor
    """Whether the servers hold variables already."""
    probe: tf.Operation


def build(spec: TrainingSpec, task: Task) -> InGraph:
    """The graph, on the chief."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(sessions.device_of(task)):
        with tf.device(placement.holders(spec)[0]):
            step = placement.untracked(tf.zeros([], tf.int64), "global_step")
        with tf.variable_creator_scope(placement.placing(spec)):
            model = build_model(spec)
        batches, replicas = zip(*(_replica(spec, model, index) for index in range(spec.workers)), strict=True)
        optimizer, kept = optimizers.build(spec), averages_of(spec)
        gradients = _means([each.gradients for each in replicas], model.trainable_weights)
        apply = optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True), global_step=step)
        if kept is not None:
            with tf.control_dependencies([apply]):
                apply = kept.apply(model.trainable_weights)
        tasks = [Task("worker", index) for index in range(spec.workers)]
        return InGraph(
            graph=graph,
            inputs=batches,
            variables=variables_of(spec, model, optimizer, kept, step),
            step=tf.group(apply, *replicas[0].updates),  # one replica speaks for all
            loss=tf.add_n([each.loss for each in replicas]) / spec.workers,
            used=tf.compat.v1.is_variable_initialized(step),
            probe=sessions.probe([*map(sessions.device_of, tasks), *placement.holders(spec)]),
        )


def _replica(spec: TrainingSpec, model: Any, index: int) -> tuple[Inputs, Replica]:
    with tf.device(sessions.device_of(Task("worker", index))), tf.name_scope(f"replica_{index}"):
        batch = inputs.inputs(spec, index)
        return batch, replica.replica(spec, model, batch, index)


def _means(gradients: list[list[tf.Tensor]], weights: list[Any]) -> list[tf.Tensor]:
    """The mean of each weight's gradients over the replicas, computed where the weight is."""
    means = []
    for of_weight, weight in zip(zip(*gradients, strict=True), weights, strict=True):
        with tf.device(weight.device):
            means.append(tf.add_n(of_weight) / len(of_weight))
    return means
