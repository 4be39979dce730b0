"""Whether CPUs and memory of trainers are on the NUMA nodes of their GPUs: what their kubelets promise of it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.booking.booking import names
from closeknit.launch.cpus import cpus, is_guaranteed
from closeknit.launch.environment.user_overrides import HarmfulSetting
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.template import trainer

SETTING = "resources.limits.cpu"


def unpinned(gang: Gang) -> tuple[HarmfulSetting, ...]:
    """What a template that asks for CPUs of its own, as a Guaranteed Pod with whole ones, does not get, a line for each
    reason; nothing where no kubelet tells its policies, and where the template asks for nothing of the kind."""
    pod = gang.job.spec.template.spec
    asked = cpus(pod, trainer(pod))
    if asked is None or not is_guaranteed(pod):
        return ()
    nodes: dict[str, list[str]] = {}
    for worker in gang.workers:
        if (why := _lacks(worker, asked)) is not None:
            nodes.setdefault(why, []).append(worker.node)
    return tuple(
        HarmfulSetting(SETTING, f"{asked.normalize():f}", f"on {names(found)} {why}") for why, found in nodes.items()
    )


def promise(member: Member, pod: Mapping[str, Any]) -> str:
    """What is sure of the trainer's CPUs, as a clause; empty where nothing is."""
    asked = Decimal(member.cpus) if member.cpus is not None else cpus(pod, trainer(pod))
    is_given = member.cpus is not None or is_guaranteed(pod)
    is_sure = member.kubelet.pins_cpus and member.kubelet.aligns
    if asked is None or not is_given or not is_sure or _lacks(member, asked) is not None:
        return ""
    what = "they and its memory are" if member.kubelet.pins_memory else "they are"
    return f"{what} its own, on the NUMA nodes of its GPUs"


def _lacks(member: Member, asked: Decimal) -> str | None:
    """Why these CPUs are not the trainer's own and beside its GPUs; None where they are, or if unknown."""
    kubelet = member.kubelet
    if not kubelet.may_give_cpus:
        return (
            f"the CPU manager is {kubelet.cpu_manager}: its CPUs are shared with others, on any NUMA node; have an "
            "administrator set cpuManagerPolicy: static and topologyManagerPolicy: restricted"
        )
    if not kubelet.pins_cpus:
        return None
    if asked % 1:
        return f"no CPU is its own: a static CPU manager gives whole ones; ask for {int(asked) + 1}"
    if kubelet.aligns and member.binding is Binding.DRA:
        return "its CPUs are its own, but on any NUMA node: a Topology Manager knows nothing of GPUs that claims bind"
    if kubelet.topology_manager is not None and not kubelet.aligns:
        return (
            "its CPUs are its own, but on any NUMA node: the Topology Manager's policy is none; have an administrator "
            "set topologyManagerPolicy: restricted"
        )
    return None
