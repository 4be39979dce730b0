"""TensorFlow with parameter servers: `python tf_servers.py`, in every task alike.

TF_CONFIG says which task this is. Workers and servers only serve; the chief hands out steps, prints what came of them,
and ends the job by ending itself.
"""

import json
import os
import socket

import tensorflow as tf

STEPS = 20


def serve(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """Does what the chief says, until somebody ends this process."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a task that is not there yet is waited for
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    )
    server.join()


def lead(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.ones([16]))

    @tf.function
    def step() -> tf.Tensor:
        inputs = tf.random.normal([32, 16])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(inputs, weights)))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    losses = [coordinator.schedule(step) for _ in range(STEPS)]
    coordinator.join()
    cluster = resolver.cluster_spec().as_dict()
    facts = {
        "task": {"type": resolver.task_type, "index": resolver.task_id},
        "tasks": {kind: len(hosts) for kind, hosts in cluster.items()},
        "host": socket.gethostname(),
        "variables_on": weights.device,
        "steps": sum(1 for loss in losses if loss.fetch() >= 0),
    }
    print(json.dumps(facts), flush=True)


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    else:
        lead(resolver)


if __name__ == "__main__":
    main()
