"""The examples for PyTorch as they run on real GPUs: their manifests, on the machine's own PyTorch, on one node."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from hardware.site import Site, in_container
from harness.node.host_python import ROOT

EXAMPLES = ROOT / "examples"
OVERLAP = ROOT / "tests/harness/probes/overlap.py"
TRAININGS = ("pytorch-ddp", "pytorch-processes", "pytorch-dataparallel", "pytorch-hybrid", "pytorch-streams")
# What a machine with few GPUs has room for beside the node's own Pods. Limits are requests, so that CPUs are whole.
RESOURCES = {"cpu": "8", "memory": "16Gi"}
PRETENDED_RESOURCES = {"cpu": "1", "memory": "1Gi"}


def degrees(gpus: int) -> dict[str, int]:
    """Of hybrid parallelism, as many kinds of groups as so many GPUs have room for."""
    found = {"tensor": 2, "pipeline": 2 if gpus >= 4 else 1, "expert": 2 if gpus >= 8 else 1}
    return {name: degree for name, degree in found.items() if degree > 1}


def processes(name: str, gpus: int) -> int:
    """How many processes of an example tell which rank they are."""
    return 1 if name == "pytorch-dataparallel" else gpus


def unheard(lines: Sequence[Mapping[str, Any]], wanted: int) -> str:
    """What is lacking of the ranks' own words; empty where each was heard."""
    heard = {line.get("rank", 0) for line in lines if "rank" in line or "world_size" in line}
    return "" if heard == set(range(wanted)) else f"heard of ranks {sorted(heard)}, and there are {wanted}"


def training(name: str, gpus: int, site: Site) -> tuple[str, dict[str, Any]]:
    """The command and the spec of `examples/NAME.yaml` for so many GPUs of one node, without its template."""
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
    (container,) = spec.pop("template")["spec"]["containers"]
    program, *arguments = container["command"]
    if name == "pytorch-hybrid":
        spec["parallelism"] = degrees(gpus)
        arguments = [arguments[0], *(f"--{axis}={degree}" for axis, degree in degrees(gpus).items())]
    if site.pretended:  # by Debian's torchrun, which is older than this argument
        arguments = [each for each in arguments if not each.startswith("--numa-binding")]
    scripts = [_where(each) for each in arguments]
    if name == "pytorch-streams":
        scripts.insert(-1, in_container(OVERLAP))
    spec |= {"gpus": gpus, "topology": {"gpusPerNode": gpus}}
    launcher = [site.trainer, *(["-m", "torch.distributed.run"] if program == "torchrun" else [])]
    return shlex.join([*launcher, *scripts]), spec


def _where(argument: str) -> str:
    file = argument.removeprefix("/examples/")
    return in_container(EXAMPLES / "scripts" / file) if file != argument else argument
