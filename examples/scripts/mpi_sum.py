"""An all-reduce over MPI: `mpirun python mpi_sum.py`. One rank for each GPU, which it finds by its local rank."""

import json
import os
import socket

from mpi4py import MPI


def main() -> None:
    world = MPI.COMM_WORLD
    # Open MPI, then MPICH and Intel MPI.
    local_rank = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("MPI_LOCALRANKID"))
    facts = {
        "rank": world.rank,
        "world_size": world.size,
        "local_rank": int(local_rank or 0),
        "host": socket.gethostname(),
        "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES", ""),
    }
    print(json.dumps(facts), flush=True)
    assert world.allreduce(world.rank) == world.size * (world.size - 1) // 2


if __name__ == "__main__":
    main()
