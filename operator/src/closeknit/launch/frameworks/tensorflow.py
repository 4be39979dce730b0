"""TensorFlow's contract: TF_CONFIG, in which every task finds the whole cluster and itself.

One process drives all GPUs of its Pod, so that a node is one task. MirroredStrategy needs no cluster: a gang on one
node without parameter servers gets none. MultiWorkerMirroredStrategy takes worker 0 as its chief.

ParameterServerStrategy wants a task of its own to coordinate the others, which only serve it: the first of the tasks on
CPUs is this chief, the others of them are the servers, and the job is over when the chief ends.
"""

import json

from closeknit.api.names import Role
from closeknit.api.trainingjob import TrainingJobSpec
from closeknit.launch.frameworks.contract import Contract, SuccessOf
from closeknit.launch.gang import Gang
from closeknit.launch.member import Member
from closeknit.launch.variable import Variable

PORT = 2222  # TensorFlow's own examples and TFJob


def variables(gang: Gang, member: Member) -> tuple[Variable, ...]:
    """TF_CONFIG, byte for byte the same but for the task."""
    if len(gang.members) == 1:
        return ()
    tasks, workers = gang.addresses(PORT), len(gang.workers)
    cluster = {"worker": tasks[:workers]}
    if tasks[workers:]:
        cluster["chief"] = tasks[workers : workers + 1]
    if tasks[workers + 1 :]:
        cluster["ps"] = tasks[workers + 1 :]
    kind, index = _task(member)
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return (Variable("TF_CONFIG", json.dumps(config, separators=(",", ":")), "all tasks in rank order, and this one"),)


def _task(member: Member) -> tuple[str, int]:
    """Type and index of a member."""
    if member.role is Role.WORKER:
        return "worker", member.index
    return ("ps", member.index - 1) if member.index else ("chief", 0)


def _ends(spec: TrainingJobSpec) -> SuccessOf:
    return SuccessOf.WORKERS if spec.parameter_servers is None else SuccessOf.CHIEF


CONTRACT = Contract(variables, ends=_ends)
