"""What a gang that restarts in place has in each of its Pods: the sidecar, the barrier, the rules by which all
containers start again, and a wrapper that keeps the trainer's exit code, which Kubernetes loses on the way.

How they work together: docs/decisions/0016-restart-in-place.md.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER, SIZE_ANNOTATION, Role
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import OnHang, PodTemplate, TrainingJobSpec
from closeknit.cluster.booking.gang_sidecar import SIDECAR_RESOURCES
from closeknit.cluster.booking.in_place_exit_codes import reset_codes
from closeknit.cluster.pods.gang_runs import tellers
from closeknit.cluster.pods.pod import DEFAULT_GRACE_S
from closeknit.launch.environment.user_overrides import depends_on_nccl
from closeknit.launch.frameworks.registry import contract
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.template import GANG_VOLUME, SIZE_VOLUME

PORT = 29_200  # the sidecars' own; below the preflight's, and 64 apart from it as the ports of a gang are
# The four that the sidecar has as well (closeknit.sidecar.gang.settings); tests compare them.
VARIABLE = "CLOSEKNIT_GANG"
REPLACED_VARIABLE = "CLOSEKNIT_GANG_REPLACED"
FOLDER = "/run/closeknit-gang"
SIZE_FOLDER = f"{FOLDER}-size"
LONGEST_GRACE_S = 600  # for a barrier that joins waits no longer than a quarter of an hour
RESET_CODE = 77
PROGRESS_VARIABLE = "CLOSEKNIT_PROGRESS_FILE"  # the trainer may touch the file that it names
_PROGRAM = "closeknit-sidecar"
_SIDECAR_USER = 1000  # as of the agent
SHELL = "/bin/sh"

# The image's own python becomes process 1, starts the trainer as its child, passes on every signal, and takes the place
# of an init for orphans. As long as it lives it holds a lock, which the kernel takes from it. Signals that musl or
# glibc has for itself are left alone. An image without python is refused, by words that the operator knows. Without
# `site`, and with nothing of the working directory in its path. A file of the sidecar has the trainer told to end; then
# it stays until all containers start again, for one that ends with 0 is not started again by itself.
WRAPPER = """\
import sys
sys.path[:1]=[]
import os,signal
d=sys.argv[1];a=sys.argv[3:]
def put(n,t):
 try:
  with open(d+"/."+n,"w",errors="replace")as f:f.write(t);os.chmod(f.name,420)
  os.replace(f.name,d+"/"+n+"-"+r)
 except OSError:pass
r=""
try:
 with open(d+"/run")as f:r=f.read(20)
 for n in os.listdir(d):n[:5]in("wrapp","told-","leave","exit-","words")and os.remove(d+"/"+n)
except OSError:pass
try:
 with open(d+"/env")as f:os.environ.update(l.strip().split("=",1)for l in f)
except(OSError,ValueError):pass
put("wrapped","")
try:
 k=open(d+"/wrapped-"+r,"a");os.lockf(k.fileno(),os.F_TLOCK,0)
except OSError:pass
e=set(range(1,signal.NSIG))-{4,5,7,8,9,11,19,21,22,32,33,34}
signal.pthread_sigmask(0,e)
c=os.fork()
if not c:
 for s in(13,25):signal.signal(s,signal.SIG_DFL)
 signal.pthread_sigmask(1,e)
 try:os.execvp(a[0],a)
 except OSError as x:sys.stderr.write("closeknit: cannot start %s: %s\\n"%(a[0],x.strerror));os._exit(126+(x.errno==2))
x=None
q=0
while x is None:
 s=signal.sigtimedwait(e,1)
 s=s.si_signo if s else 17
 if not q and os.path.exists(d+"/leave-"+r):q=1;s=15
 if s==15:put("told","")
 if s!=17:
  try:os.kill(c,s)
  except OSError:pass
 while 1:
  try:p,w=os.waitpid(-1,1)
  except OSError:break
  if not p:break
  if p==c:x=os.WEXITSTATUS(w)if os.WIFEXITED(w)else 128+os.WTERMSIG(w)
try:
 with open(sys.argv[2],errors="replace")as f:put("words",f.read(1024))
except OSError:pass
put("exit",str(x))
if q:signal.sigwait({15})
os._exit(x)
"""
NO_PYTHON = "closeknit: the image has no python"
LAUNCH = (
    "for p in python3 python; do command -v $p >/dev/null 2>&1 && "
    "$p -S -c 'import _signal' 2>/dev/null && "  # built into Python 3, and not into 2
    'exec $p -S -c "$0" "$@"; done; read -r r < "$1/run"; '
    f'echo "{NO_PYTHON}" > "$1/words-$r"; echo 126 > "$1/exit-$r"; exit 126'
)


def with_sidecar(gang: Gang, index: int, trainer: int, spec: Manifest) -> Manifest:
    """The finished spec of gang.members[index] with all that; `trainer` is the index of its trainer's container."""
    mount = {"name": GANG_VOLUME, "mountPath": FOLDER}
    containers = list(spec["containers"])
    containers[trainer] = _trainer(gang.job.spec, containers[trainer], mount)
    told = _told(gang, index)
    ours: list[Manifest] = [mount]
    volumes: list[Manifest] = []
    if is_told_size(gang, gang.members[index]):
        ours.append({"name": SIZE_VOLUME, "mountPath": SIZE_FOLDER, "readOnly": True})
        told_by = {"path": "size", "fieldRef": {"fieldPath": f"metadata.annotations['{SIZE_ANNOTATION}']"}}
        volumes.append({"name": SIZE_VOLUME, "downwardAPI": {"items": [told_by]}})
    return {
        **spec,
        # First of all: an init container of the template may meet others, too.
        "initContainers": [_barrier(gang, told, ours), *(spec.get("initContainers") or [])],
        # Beside the trainer: as a native sidecar it would hold back the start for another round of the kubelet.
        "containers": [*containers, _sidecar(gang, index, told, ours)],
        # In memory: a full disk must not keep a gang from starting again.
        "volumes": [
            *(spec.get("volumes") or []),
            {"name": GANG_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            *volumes,
        ],
    }


def with_replaced(gang: Gang, member: Member, spec: Manifest) -> Manifest:
    """The spec as `with_sidecar` makes it, in which the sidecar of a new meeting point is told which Pods have taken
    the place of others: the gang has told that the old one. As it is in any other Pod."""
    is_meeting_point = member.index == 0 and member.role is Role.WORKER
    if not (is_meeting_point and member.replacement):
        return spec
    replaced = {str(at): each.replacement for at, each in enumerate(gang.members) if each.replacement}
    told = {"name": REPLACED_VARIABLE, "value": json.dumps(replaced, separators=(",", ":"))}
    barrier, *inits = spec["initContainers"]
    *containers, sidecar = spec["containers"]
    return {
        **spec,
        "initContainers": [{**barrier, "env": [*barrier["env"], told]}, *inits],
        "containers": [*containers, {**sidecar, "env": [*sidecar["env"], told]}],
    }


def _trainer(spec: TrainingJobSpec, trainer: Manifest, mount: Manifest) -> Manifest:
    codes = reset_codes(spec)
    operator, values = ("In", codes.codes) if codes.are_named else ("NotIn", (0, *codes.codes))
    changed = {**trainer, "volumeMounts": [*(trainer.get("volumeMounts") or []), mount]}
    if values:
        changed |= {"restartPolicy": "Never", "restartPolicyRules": [_rule(operator, values)]}
    if spec.restart is not None and spec.restart.stall_deadline is not None:
        changed["env"] = [{"name": PROGRESS_VARIABLE, "value": f"{FOLDER}/progress"}, *(trainer.get("env") or [])]
    command = trainer.get("command")
    if isinstance(command, list) and command:  # as of every job that may restart in place
        words = trainer.get("terminationMessagePath") or "/dev/termination-log"
        changed["command"] = [SHELL, "-c", LAUNCH, WRAPPER, FOLDER, words, *command]
    return changed


def _told(gang: Gang, index: int) -> Manifest:
    codes = reset_codes(gang.job.spec)
    return {
        "index": index,
        **({"replacement": gang.members[index].replacement} if gang.members[index].replacement else {}),
        "size": len(gang.members),
        "host": gang.coordinator,
        "port": gang.port(gang.members[0], PORT),
        **({"probePort": _probe_port(gang, index)} if 0 != index in tellers(len(gang.workers)) else {}),
        "key": key(gang),
        "resetCodes" if codes.are_named else "finalCodes": codes.codes,
        **_hangs(gang),
        **({"sizes": dict(named), "grace": _grace_s(gang)} if (named := sizes(gang)) else {}),
    }


def sizes(gang: Gang) -> Mapping[str, str]:
    """The variables by which the trainers of a gang that may grow learn its size, each with its pattern, as the sidecar
    fills it in. Empty where its Pods cannot take another size: their framework needs files, what the user gives refers
    to such a variable, so that it has the old value for good, or their grace period is longer than a new Pod waits.
    From one node on its Pods have other resources."""
    spec, named = gang.job.spec, contract(gang).sizes
    is_elastic = spec.elastic is not None and spec.elastic.min_gpus < spec.gpus
    if not (is_elastic and named and len(gang.workers) > 1 and _grace_s(gang) <= LONGEST_GRACE_S):
        return {}
    if not spec.template.once(_referred_to).isdisjoint(named):
        return {}
    users = gang.users_environment(Role.WORKER)
    return {name: pattern for name, pattern in named.items() if name not in users}


def _referred_to(template: PodTemplate) -> frozenset[str]:
    """The variables that Kubernetes puts into a template's commands and other variables."""
    return frozenset(re.findall(r"\$\(([^()]*)\)", json.dumps(template.spec)))


def is_told_size(gang: Gang, member: Member) -> bool:
    """Whether this member is told the size of the gang by an annotation: the meeting point of one that may grow."""
    return member.index == 0 and member.role is Role.WORKER and bool(gang.sidecar_image) and bool(sizes(gang))


def size_told(gang: Gang) -> str:
    """The value of that annotation."""
    return f"{len(gang.workers)} {gang.world_size}"


def _grace_s(gang: Gang) -> int:
    found = gang.template(Role.WORKER).spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if found is None else found


def _sidecar(gang: Gang, index: int, told: Manifest, mounts: Sequence[Manifest]) -> Manifest:
    # Only for who looks at the Pod's status: ready is who hears the whole gang. Its Service names Pods that are not.
    port = _probe_port(gang, index)
    probe = {"httpGet": {"path": "/whole", "port": port}, "periodSeconds": 5, "failureThreshold": 1}
    return {
        "name": SIDECAR_CONTAINER,
        "restartPolicy": "OnFailure",  # it ends with its trainer
        "restartPolicyRules": [_rule("In", (RESET_CODE,))],
        **({"readinessProbe": probe} if index in tellers(len(gang.workers)) else {}),
        **_container(gang, "watch", told, mounts),
    }


def _probe_port(gang: Gang, index: int) -> int:
    """Where the kubelet asks a Pod that tells whether its gang is whole."""
    return gang.port(gang.members[index], PORT)


def _hangs(gang: Gang) -> Manifest:
    """How the sidecar watches for hangs. On its node's own network NCCL's RAS may be that of another job."""
    restart = gang.job.spec.restart
    told: Manifest = {} if gang.on_host_network else {"ras": True}
    if told and depends_on_nccl(gang.users_environment(Role.WORKER)):
        told["nccl"] = True  # whatever is known by now: all Pods of an attempt are told the same
    if restart is not None and restart.stall_deadline is not None:
        told["stallSeconds"] = duration_s(restart.stall_deadline)
        told |= {"firstStep": True} if gang.attempt > 1 else {}  # what a restart took: the first start is none
    if restart is not None and restart.on_hang is OnHang.RESTART:
        told["onHang"] = restart.on_hang.value
    return told


def _barrier(gang: Gang, told: Manifest, mounts: Sequence[Manifest]) -> Manifest:
    command = "join" if told.get("replacement") else "barrier"
    return {"name": BARRIER_CONTAINER, **_container(gang, command, told, mounts)}


def _container(gang: Gang, command: str, told: Manifest, mounts: Sequence[Manifest]) -> Manifest:
    """As the strictest level of Pod Security wants a container."""
    return {
        "image": gang.sidecar_image,
        "command": [_PROGRAM, command],
        "env": [
            {"name": VARIABLE, "value": json.dumps(told, separators=(",", ":"))},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},  # an image may ask NVIDIA's runtime for all GPUs
        ],
        "resources": {"requests": dict(SIDECAR_RESOURCES), "limits": dict(SIDECAR_RESOURCES)},
        "volumeMounts": list(mounts),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _SIDECAR_USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _rule(operator: str, codes: tuple[int, ...]) -> Manifest:
    return {"action": "RestartAllContainers", "exitCodes": {"operator": operator, "values": list(codes)}}


def key(gang: Gang) -> str:
    """The key that the Pods of one attempt share, in hex. The job's uid has 122 random bits, and only who may read jobs
    or Pods of the namespace knows it: it keeps out every Pod of other namespaces. Who may read those of this one may
    delete or end them by other ways."""
    return sha256(f"closeknit-gang {gang.job.metadata.uid} {gang.attempt}".encode()).hexdigest()
