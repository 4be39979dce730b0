"""Run by an interpreter that has PyTorch: what torchrun makes of environments. JSON in, JSON out."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from torch.distributed import HashStore
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent, WorkerSpec
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc
from torch.distributed.run import config_from_args, get_args_parser


class Agent(SimpleElasticAgent):
    """The part that gives ranks; nothing is started."""

    def _start_workers(self, worker_group: Any) -> Any:
        raise NotImplementedError

    _stop_workers = _monitor_workers = _shutdown = _start_workers  # abstract there


def parsed(environment: dict[str, str]) -> Any:
    """What `torchrun train.py` would do in this environment."""
    os.environ.update(environment)  # the parser reads it when it is made
    try:
        config, _, _ = config_from_args(get_args_parser().parse_args(["train.py"]))
    finally:
        for name in environment:
            del os.environ[name]
    return config


def ranks(configs: list[Any], order: list[int]) -> list[list[int]]:
    """The global ranks that torchrun's agents agree on; `order[i]` is the node rank of config i."""
    store = HashStore()

    def of(index: int) -> list[int]:
        config = configs[index]
        spec = WorkerSpec(config.role, config.nproc_per_node, SimpleNamespace(), entrypoint="true")
        workers = Agent(spec)._assign_worker_ranks(store, order[index], len(configs), spec)
        return [worker.global_rank for worker in workers]

    with ThreadPoolExecutor(len(configs)) as pool:
        return list(pool.map(of, range(len(configs))))


def told(environments: list[dict[str, str]]) -> dict[str, Any]:
    """Of one gang."""
    configs = [parsed(environment) for environment in environments]
    if configs[0].rdzv_backend == "static":
        order = [config.rdzv_configs["rank"] for config in configs]
    else:  # as DynamicRendezvousHandler sorts participants; newer versions take the name from --local-addr
        nodes = [_NodeDesc(environment["PET_LOCAL_ADDR"], 1, 0) for environment in environments]
        order = [sorted(nodes).index(node) for node in nodes]
    return {
        "nodes": [
            {
                "minimum": config.min_nodes,
                "maximum": config.max_nodes,
                "processes": config.nproc_per_node,
                "backend": config.rdzv_backend,
                "endpoint": config.rdzv_endpoint,
                "run": config.run_id,
            }
            for config in configs
        ],
        "node_ranks": order,
        "ranks": ranks(configs, order),
    }


json.dump([told(gang) for gang in json.load(sys.stdin)], sys.stdout)
