"""Run by an interpreter that has JAX, once for each process of a gang: what JAX takes it for. JSON out."""

import json
import os

import jax

jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
print(json.dumps({"process": jax.process_index(), "processes": jax.process_count(), "devices": jax.device_count()}))
jax.distributed.shutdown()
