"""ssh between the Pods of a gang: a key pair of the job, and sshd and ssh of the user's image.

An init container makes what ssh and sshd want to have as files of their own user; at node rank 0 it ends when all other
hosts let it in. sshd starts what it is asked for in the environment of its own container, so that a rank finds the
variables of its node whatever its launcher passes on. One key pair serves as everybody's identity and as every host's
key: who has it is a Pod of the job.
"""

from collections.abc import Mapping
from typing import Any

from closeknit.launch.frameworks.mounted_files import FILES_PATH, FILES_VOLUME
from closeknit.launch.gang import Gang, Manifest
from closeknit.launch.member import Member
from closeknit.launch.template import SSH_CONTAINER

KEYS_VOLUME = "closeknit-keys"
KEYS_PATH = "/etc/closeknit-keys"
SSH_VOLUME = "closeknit-ssh"
SSH_PATH = "/run/closeknit"
PRIVATE_KEY = "ssh-privatekey"
PUBLIC_KEY = "ssh-publickey"
PORT = 2222  # above 1023, for who is not root; what other operators of MPI jobs take
# Connections that the first node tries at once before anything starts: each is a process with 2 MB for a second.
AT_ONCE = 32

_SSH_CONFIG = f"""\
Host *
  Port {PORT}
  IdentityFile {SSH_PATH}/id
  IdentitiesOnly yes
  UserKnownHostsFile {SSH_PATH}/known_hosts
  HostKeyAlias closeknit
  StrictHostKeyChecking yes
  PasswordAuthentication no
  ConnectTimeout 10
  ConnectionAttempts 10
  ServerAliveInterval 30
  LogLevel ERROR
"""
_SSHD_CONFIG = f"""\
HostKey {SSH_PATH}/id
AuthorizedKeysFile {KEYS_PATH}/{PUBLIC_KEY}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding no
MaxStartups 1024
ForceCommand /bin/sh {FILES_PATH}/session.sh
"""
_PREPARE = f"""\
set -eu
umask 077
cat {KEYS_PATH}/{PRIVATE_KEY} > {SSH_PATH}/id
echo "closeknit $(cat {KEYS_PATH}/{PUBLIC_KEY})" > {SSH_PATH}/known_hosts
[ "$1" = wait ] || exit 0
command -v ssh > /dev/null || {{ echo "the image has no ssh; put OpenSSH's client and server into it" >&2; exit 1; }}
tries() {{
  until ssh -n -F {FILES_PATH}/ssh_config -o BatchMode=yes "$1" true; do echo "waiting for $1" >&2; sleep 1; done
}}
count=0
while read -r host _; do
  [ "$count" -eq 0 ] || tries "$host" &
  count=$((count + 1))
  [ $((count % {AT_ONCE})) -ne 0 ] || wait
done < {FILES_PATH}/hostfile
wait
"""
_SERVE = f"""\
set -eu
umask 077
export -p > {SSH_PATH}/environment
umask 022
mkdir -p /run/sshd 2> /dev/null || true
sshd=$(command -v sshd || echo /usr/sbin/sshd)
[ -x "$sshd" ] || {{ echo "the image has no sshd; put OpenSSH's client and server into it" >&2; exit 1; }}
exec "$sshd" -D -e -p "$1" -f {FILES_PATH}/sshd_config
"""
_SESSION = f"""\
. {SSH_PATH}/environment
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def is_used(gang: Gang) -> bool:
    """Whether there is anybody to reach."""
    return len(gang.workers) > 1


def keys_name(gang: Gang) -> str:
    """Name of the job's Secret. The job's uid is in it: what has this name was made for this very job, so that one that
    is there already need not be looked at."""
    return f"{gang.job.metadata.name}-ssh-{gang.job.metadata.uid or ''}"


def keys(gang: Gang) -> Manifest:
    """The job's Secret, still without its key pair. It is made once and goes with the job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": gang.metadata(keys_name(gang), gang.job_labels, gang.owner),
        "type": "Opaque",
        "immutable": True,
    }


def files(gang: Gang) -> Mapping[str, str]:
    """Settings and scripts; none without hosts to reach."""
    if not is_used(gang):
        return {}
    return {
        "ssh_config": _ports(gang) + _SSH_CONFIG,
        "sshd_config": _SSHD_CONFIG,
        "prepare.sh": _PREPARE,
        "serve.sh": _SERVE,
        "session.sh": _SESSION,
    }


def _ports(gang: Gang) -> str:
    """Where each host has a port of its own; ssh takes the first that it reads."""
    if not gang.on_host_network:
        return ""
    return "".join(f"Host {gang.host(worker)}\n  Port {gang.port(worker, PORT)}\n" for worker in gang.workers)


def containers(gang: Gang, member: Member, spec: Manifest) -> Manifest:
    """The Pod's spec with what ssh needs; beyond node rank 0 the trainer is its server."""
    if not member.uuids or not is_used(gang):
        return spec
    index = gang.trainer_index(member.role)
    trainer = spec["containers"][index]
    is_first = member.index == 0
    mounts: list[Manifest] = [
        {"name": SSH_VOLUME, "mountPath": SSH_PATH},
        {"name": KEYS_VOLUME, "mountPath": KEYS_PATH, "readOnly": True},
    ]
    # Where OpenSSH looks by itself, for every caller and argument.
    config = {"name": FILES_VOLUME, "mountPath": "/etc/ssh/ssh_config", "subPath": "ssh_config", "readOnly": True}
    launched = {**trainer, "volumeMounts": [*trainer["volumeMounts"], *mounts, config]}
    if not is_first:
        launched = {name: value for name, value in launched.items() if name not in ("args", *_PROBES)}
        launched["command"] = ["/bin/sh", f"{FILES_PATH}/serve.sh", str(gang.port(member, PORT))]
    others = list(spec["containers"])
    others[index] = launched
    volumes = [
        {"name": SSH_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        # Readable by whatever user the image has; in the container it becomes a file of that user alone.
        {"name": KEYS_VOLUME, "secret": {"secretName": keys_name(gang), "defaultMode": 0o444}},
    ]
    return {
        **spec,
        "initContainers": [*(spec.get("initContainers") or []), _prepare(trainer, mounts, is_first=is_first)],
        "containers": others,
        "volumes": [*spec["volumes"], *volumes],
    }


def _prepare(trainer: Manifest, mounts: list[Manifest], *, is_first: bool) -> Manifest:
    """The init container: the trainer's image and user, its CPU and memory, for quotas want a number, and no GPU."""
    container: dict[str, Any] = {
        field: trainer[field] for field in ("image", "imagePullPolicy", "securityContext") if trainer.get(field)
    }
    resources = trainer.get("resources") or {}
    plain = {
        field: {name: amount for name, amount in (resources.get(field) or {}).items() if name in ("cpu", "memory")}
        for field in ("limits", "requests")
    }
    return {
        "name": SSH_CONTAINER,
        **container,
        "command": ["/bin/sh", f"{FILES_PATH}/prepare.sh", "wait" if is_first else "serve"],
        # An image may ask NVIDIA's runtime for all GPUs.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": {field: amounts for field, amounts in plain.items() if amounts},
        "volumeMounts": [*mounts, {"name": FILES_VOLUME, "mountPath": FILES_PATH, "readOnly": True}],
    }
