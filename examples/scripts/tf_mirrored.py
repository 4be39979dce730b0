"""TensorFlow over all GPUs of one node, or of many: `python tf_mirrored.py`.

One process on each node drives all its GPUs. With TF_CONFIG the strategy is MultiWorkerMirroredStrategy, without it
MirroredStrategy.
"""

import json
import os
import socket

import tensorflow as tf


def main() -> None:
    on_many = "TF_CONFIG" in os.environ
    if on_many:
        nccl = tf.distribute.experimental.CommunicationImplementation.NCCL
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        how = nccl if tf.config.list_physical_devices("GPU") else ring
        options = tf.distribute.experimental.CommunicationOptions(implementation=how)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    else:
        strategy = tf.distribute.MirroredStrategy()
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "worker", "index": 0})
    facts = {"task": task, "replicas": strategy.num_replicas_in_sync, "host": socket.gethostname()}
    print(json.dumps(facts), flush=True)
    with strategy.scope():
        weights = tf.Variable(tf.ones([16]))

    @tf.function
    def step() -> tf.Tensor:
        def on_replica() -> tf.Tensor:
            inputs = tf.random.normal([32, 16])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(inputs, weights)))
            gradient = tape.gradient(loss, weights)
            everywhere = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weights.assign_sub(0.05 * everywhere)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(on_replica), axis=None)

    for _ in range(5):
        loss = step()
    print(json.dumps({"task": task, "loss": round(float(loss), 4)}), flush=True)


if __name__ == "__main__":
    main()
