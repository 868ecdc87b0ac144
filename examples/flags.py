"""Between-graph training of a program that is configured by flags, as before tf.distribute.

tfdist launch --strategy parameter-server --workers 2 --ps 1 -- python examples/flags.py --job_name={job} \\
  --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

import tfdist.measure

tf.disable_v2_behavior()
BATCH = 16


def main() -> None:
    """Serve as a parameter server, or train as a worker."""
    parser = argparse.ArgumentParser()
    for flag in ("--job_name", "--ps_hosts", "--worker_hosts"):
        parser.add_argument(flag)
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--train_steps", type=int, default=200)
    flags = parser.parse_args()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        hidden = tf.nn.relu(images @ tf.get_variable("w1", [64, 32]))
        logits = hidden @ tf.get_variable("w2", [32, 10])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    rng = np.random.default_rng(flags.task_index)
    batch = {images: rng.random((BATCH, 64), np.float32), labels: rng.integers(10, size=BATCH)}
    filters = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{flags.task_index}"])
    chief = flags.task_index == 0
    supervisor = tf.train.Supervisor(is_chief=chief, logdir=None, recovery_wait_secs=1, global_step=step)
    session = supervisor.prepare_or_wait_for_session(server.target, config=filters)
    for _ in tfdist.measure.steps(range(flags.train_steps), examples=BATCH):
        _, done = session.run([train, step], batch)
    print(f"{flags.job_name} {flags.task_index}: {done} steps of all workers")


main()
