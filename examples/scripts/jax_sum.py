"""Data parallel training in JAX: `python jax_sum.py`, one process on each node, which drives all its GPUs.

Without GPUs each process has as many CPU devices as XLA_FLAGS=--xla_force_host_platform_device_count says.
"""

import json
import os
import socket

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def main() -> None:
    # JAX finds the coordinator's address itself, and leaves these two to the script.
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    facts = {
        "process": jax.process_index(),
        "processes": jax.process_count(),
        "devices": jax.device_count(),
        "local_devices": jax.local_device_count(),
        "host": socket.gethostname(),
    }
    print(json.dumps(facts), flush=True)
    mesh = Mesh(jax.devices(), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    own = jnp.full((jax.local_device_count(), 16), float(jax.process_index()))
    inputs = jax.make_array_from_process_local_data(rows, own)
    weights = jax.device_put(jnp.ones(16), everywhere)

    @jax.jit
    def step(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - 1.0) ** 2))(weights)
        return weights - 0.001 * gradient, loss  # the gradient is summed over all devices

    for _ in range(10):
        weights, loss = step(weights, inputs)
    print(json.dumps({"process": jax.process_index(), "loss": round(float(loss), 4)}), flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
