"""TensorFlow's contract: TF_CONFIG, in which every task finds the whole cluster and itself.

One process drives all GPUs of its Pod, so that a node is one task. MirroredStrategy needs no cluster: a gang on one
node without parameter servers gets none. MultiWorkerMirroredStrategy takes worker 0 as its chief.
"""

import json

from closeknit.api.names import Role
from closeknit.launch.contract import Contract
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable

PORT = 2222  # TensorFlow's own examples and TFJob
_TASK = {Role.WORKER: "worker", Role.PARAMETER_SERVER: "ps"}


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """TF_CONFIG, byte for byte the same but for the task."""
    if len(gang.members) == 1:
        return ()
    cluster: dict[str, list[str]] = {}
    for each in gang.members:
        cluster.setdefault(_TASK[each.role], []).append(f"{gang.host(each)}:{gang.port(each, PORT)}")
    config = {"cluster": cluster, "task": {"type": _TASK[member.role], "index": member.index}}
    return (Variable("TF_CONFIG", json.dumps(config, separators=(",", ":")), "all tasks in rank order, and this one"),)


CONTRACT = Contract(variables)
