"""GPUs that their node's agent calls unhealthy, told to others as DeviceTaintRules: so that Pods that are not ours keep
away from them, too. One is taken back when its GPU is well, or gone.

What is told goes by what the agent says, and never by these rules. Placement heeds both: as long as a rule is there,
kube-scheduler gives the GPU to none of our claims either.
"""

import re
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from closeknit.api.names import GPU_DRA_DRIVER, UNHEALTHY_TAINT
from closeknit.cluster.cluster import Cluster
from closeknit.cluster.objects.dra import DeviceTaintRule
from closeknit.cluster.reported_devices import UnhealthyDevice

# Of resource.k8s.io, the newest first: Kubernetes 1.37 serves the first alone unless an admin wants more, and 1.36 the
# second where an admin has turned it on.
TAINT_RULE_VERSIONS = ("v1", "v1beta2")
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # of a taint, as of a label


class DeviceTaints(StrEnum):
    """Whether unhealthy GPUs are told to others."""

    NEVER = "Never"
    DRY_RUN = "DryRun"
    """With the effect None: kubectl shows what would be kept away, and nothing is."""
    NO_SCHEDULE = "NoSchedule"

    @property
    def effect(self) -> str:
        """The effect of the taints."""
        return "None" if self is DeviceTaints.DRY_RUN else str(self)


class TaintNews(NamedTuple):
    """What to write now."""

    missing: tuple[dict[str, Any], ...]
    """Rules to create, by name, without the apiVersion: in whichever of TAINT_RULE_VERSIONS is served."""
    gone: tuple[DeviceTaintRule, ...]
    """Rules to delete, by name."""


def taint_news(cluster: Cluster, taints: DeviceTaints) -> TaintNews:
    """The rules to create and to delete; nothing where nothing is told."""
    if taints is DeviceTaints.NEVER:
        return TaintNews((), ())
    wanted = {(rule := _rule(each, taints))["metadata"]["name"]: rule for each in cluster.devices.unhealthy()}
    there = {rule.name: rule for rule in cluster.devices.own_taint_rules}
    missing = tuple(rule for name, rule in sorted(wanted.items()) if name not in there)
    return TaintNews(missing, tuple(rule for name, rule in there.items() if name not in wanted))


def _rule(device: UnhealthyDevice, taints: DeviceTaints) -> dict[str, Any]:
    """Its name is a function of the device and the effect, so that another effect is another rule."""
    told = device.why.partition(", ")[0]
    digest = sha256(f"{device.pool}/{device.device}/{taints.effect}".encode()).hexdigest()[:16]
    return {
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"closeknit-{digest}", "labels": {"app.kubernetes.io/managed-by": "closeknit"}},
        "spec": {
            "deviceSelector": {"driver": GPU_DRA_DRIVER, "pool": device.pool, "device": device.device},
            "taint": {
                "key": UNHEALTHY_TAINT,
                **({"value": told} if _VALUE.fullmatch(told) else {}),
                "effect": taints.effect,
            },
        },
    }
