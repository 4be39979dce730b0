"""What a gang that restarts in place has in each of its Pods: the sidecar, the barrier, the rules by which all
containers start again, and a wrapper that keeps the trainer's exit code, which Kubernetes loses on the way.

How they work together: docs/decisions/0016-restart-in-place.md.
"""

import json
from hashlib import sha256

from closeknit.api.names import BARRIER_CONTAINER, SIDECAR_CONTAINER, Role
from closeknit.api.text.quantity import duration_s
from closeknit.api.trainingjob import OnHang, TrainingJobSpec
from closeknit.cluster.booking.gang_sidecar import SIDECAR_RESOURCES
from closeknit.cluster.booking.in_place_exit_codes import reset_codes
from closeknit.cluster.pods.gang_runs import tellers
from closeknit.launch.environment.user_overrides import depends_on_nccl
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.template import GANG_VOLUME

PORT = 29_200  # the sidecars' own; below the preflight's, and 64 apart from it as the ports of a gang are
# The four that the sidecar has as well (closeknit.sidecar.gang.settings); tests compare them.
VARIABLE = "CLOSEKNIT_GANG"
REPLACED_VARIABLE = "CLOSEKNIT_GANG_REPLACED"
FOLDER = "/run/closeknit-gang"
RESET_CODE = 77
PROGRESS_VARIABLE = "CLOSEKNIT_PROGRESS_FILE"  # the trainer may touch the file that it names
_PROGRAM = "closeknit-sidecar"
_SIDECAR_USER = 1000  # as of the agent
SHELL = "/bin/sh"

# The image's own python becomes process 1, starts the trainer as its child, passes on every signal, and takes the place
# of an init for orphans. As long as it lives it holds a lock, which the kernel takes from it. Signals that musl or
# glibc has for itself are left alone. An image without python is refused, by words that the operator knows. Without
# `site`, and with nothing of the working directory in its path.
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
 for n in os.listdir(d):n[:5]in("wrapp","told-","exit-","words")and os.remove(d+"/"+n)
except OSError:pass
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
while x is None:
 s=signal.sigwait(e)
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
    return {
        **spec,
        # First of all: an init container of the template may meet others, too.
        "initContainers": [_barrier(gang, told, mount), *(spec.get("initContainers") or [])],
        # Beside the trainer: as a native sidecar it would hold back the start for another round of the kubelet.
        "containers": [*containers, _sidecar(gang, index, told, mount)],
        # In memory: a full disk must not keep a gang from starting again.
        "volumes": [
            *(spec.get("volumes") or []),
            {"name": GANG_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
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
    }


def _sidecar(gang: Gang, index: int, told: Manifest, mount: Manifest) -> Manifest:
    # Only for who looks at the Pod's status: ready is who hears the whole gang. Its Service names Pods that are not.
    port = _probe_port(gang, index)
    probe = {"httpGet": {"path": "/whole", "port": port}, "periodSeconds": 5, "failureThreshold": 1}
    return {
        "name": SIDECAR_CONTAINER,
        "restartPolicy": "OnFailure",  # it ends with its trainer
        "restartPolicyRules": [_rule("In", (RESET_CODE,))],
        **({"readinessProbe": probe} if index in tellers(len(gang.workers)) else {}),
        **_container(gang, "watch", told, mount),
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


def _barrier(gang: Gang, told: Manifest, mount: Manifest) -> Manifest:
    command = "join" if told.get("replacement") else "barrier"
    return {"name": BARRIER_CONTAINER, **_container(gang, command, told, mount)}


def _container(gang: Gang, command: str, told: Manifest, mount: Manifest) -> Manifest:
    """As the strictest level of Pod Security wants a container."""
    return {
        "image": gang.sidecar_image,
        "command": [_PROGRAM, command],
        "env": [
            {"name": VARIABLE, "value": json.dumps(told, separators=(",", ":"))},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},  # an image may ask NVIDIA's runtime for all GPUs
        ],
        "resources": {"requests": dict(SIDECAR_RESOURCES), "limits": dict(SIDECAR_RESOURCES)},
        "volumeMounts": [mount],
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
