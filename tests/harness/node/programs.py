"""The command lines of a node's programs, and the files that they read.

Paths are those of the node: its folder is the same as outside, and what is below /var/lib and /run is its own.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.certificates import Authority
from harness.kubectl import kubeconfig_text, write_private
from harness.node.image import IMAGE
from harness.node.numa import KERNELS
from harness.node.site import API_ADDRESS, CLUSTER_DOMAIN, DNS_ADDRESS, Site

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
HOST_RUNTIME = "nvidia"  # the runtime that mounts folders of the machine, as NVIDIA's mounts the driver
PLAIN_RUNTIME = "runc"  # that mounts nothing
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"  # kubeadm's place; JSON is YAML, too
POD_LOGS = "logs/pods"  # in the node's folder
REPORTS = "reports"  # likewise: what processes in Pods write down for a test, in their /reports


def write_files(
    folder: Path,
    site: Site,
    authority: Authority,
    programs: Mapping[str, Path],
    host_folders: Mapping[str, Path],
    default_runtime: str,
) -> None:
    """Writes everything that the programs read. `host_folders`: what containers of HOST_RUNTIME see, and where;
    `default_runtime`: that of every Pod that names none."""
    plugins = folder / "cni" / "bin"
    plugins.mkdir(parents=True)
    for name in ("bridge", "loopback", "host-local", "bandwidth", "portmap"):
        (plugins / name).symlink_to(programs[name])
    (folder / "cni" / "net.d").mkdir()
    (folder / "cni" / "net.d" / "10-pods.conflist").write_text(json.dumps(_network(site)))
    (folder / "containerd.toml").write_text(_containerd_config(folder, programs, default_runtime))
    (folder / "host-runtime.json").write_text(json.dumps(_base_spec(folder, programs["ctr"], host_folders)))
    configure_kubelet(folder, site, {})
    (folder / "resolv.conf").write_text("")
    (folder / "ca.crt").write_bytes(authority.certificate)
    login = authority.client(f"system:node:{site.name}", ["system:nodes"])
    write_private(
        folder / "kubelet.kubeconfig", kubeconfig_text(f"https://{API_ADDRESS}", authority.certificate, login)
    )


def configure_kubelet(folder: Path, site: Site, changes: Mapping[str, Any]) -> None:
    """Writes the kubelet's configuration, where kubeadm has it; `changes` are fields of it."""
    file = folder / KUBELET_CONFIG.removeprefix("/")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**_kubelet_config(folder, site), **changes}))


def containerd(folder: Path, programs: Mapping[str, Path]) -> list[str]:
    """The container runtime."""
    return [str(programs["containerd"]), f"--config={folder}/containerd.toml"]


def halt() -> list[str]:
    """Kills the containers' processes, which are in process namespaces of their own, and the shims that hold them."""
    shims = 'grep -q containerd-shim "$each/comm"'
    inside = '[ "$(readlink "$each/ns/pid")" != "$(readlink /proc/self/ns/pid)" ]'
    kill = f'for each in /proc/[0-9]*; do if {shims} || {inside}; then kill -9 "${{each#/proc/}}"; fi; done; true'
    return ["sh", "-c", f"({kill}) 2>/dev/null"]


def import_image(archive: Path, programs: Mapping[str, Path]) -> list[str]:
    """Gives containerd an image."""
    client = [str(programs["ctr"]), f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io"]
    return [*client, "images", "import", "--local", "--snapshotter=overlayfs", str(archive)]


def kubelet(folder: Path, site: Site, programs: Mapping[str, Path]) -> list[str]:
    """The kubelet, under the name of its node."""
    return [
        str(programs["kubelet"]),
        f"--config={KUBELET_CONFIG}",
        f"--kubeconfig={folder}/kubelet.kubeconfig",
        f"--hostname-override={site.name}",
        f"--node-ip={site.address}",
        "--root-dir=/var/lib/kubelet",
        "--v=2",
    ]


def numa(folder: Path | None) -> list[str]:
    """Has programs that start from now on see these NUMA nodes; None: the machine's own again."""
    return ["umount", KERNELS] if folder is None else ["mount", "--bind", str(folder), KERNELS]


def device_plugin(folder: Path, devices: Path, programs: Mapping[str, Path]) -> list[str]:
    """Offers what a file names as NVIDIA's device plugin does; first those that `preferred` names."""
    how = [str(programs["gpus"]), "plugin", str(devices)]
    return [*how, f"--cdi={folder}/cdi", f"--preferred={folder}/preferred"]


def dra_driver(folder: Path, devices: Path, site: Site, programs: Mapping[str, Path]) -> list[str]:
    """Offers the same to claims, as NVIDIA's DRA driver does; it may do what the node's kubelet may."""
    how = [str(programs["gpus"]), "dra", str(devices), f"--cdi={folder}/cdi"]
    return [*how, f"--node={site.name}", f"--kubeconfig={folder}/kubelet.kubeconfig"]


def _network(site: Site) -> dict[str, Any]:
    """CNI: a bridge of the node's own; the switch knows the way to every node's Pods, so that nothing is masked."""
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": [[{"subnet": site.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [bridge, {"type": "bandwidth", "capabilities": {"bandwidth": True}}],
    }


def _containerd_config(folder: Path, programs: Mapping[str, Path], default_runtime: str) -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    runc = f"""\
runtime_type = 'io.containerd.runc.v2'
runtime_path = '{programs["containerd-shim-runc-v2"]}'
options = {{ BinaryName = '{programs["runc"]}' }}"""
    return f"""\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
address = '{CONTAINERD_SOCKET}'
[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'
pinned_images = {{ sandbox = '{IMAGE}' }}
[{runtime}]
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = ['{folder}/cdi']
[{runtime}.cni]
bin_dirs = ['{folder}/cni/bin']
conf_dir = '{folder}/cni/net.d'
[{runtime}.containerd]
default_runtime_name = '{default_runtime}'
[{runtime}.containerd.runtimes.{PLAIN_RUNTIME}]
{runc}
[{runtime}.containerd.runtimes.{HOST_RUNTIME}]
base_runtime_spec = '{folder}/host-runtime.json'
{runc}
"""


def _base_spec(folder: Path, client: Path, host_folders: Mapping[str, Path]) -> dict[str, Any]:
    """What containerd begins a container of the host's runtime with: its own default, these folders, and reports."""
    said = subprocess.run([client, "oci", "spec"], capture_output=True, check=True).stdout
    spec: dict[str, Any] = json.loads(said)
    for seen, source, access in (
        *((seen, source, "ro") for seen, source in host_folders.items()),
        ("/reports", folder / REPORTS, "rw"),
    ):
        options = ["rbind", access, "nosuid", "nodev"]
        spec["mounts"].append({"type": "bind", "source": str(source), "destination": seen, "options": options})
    return spec


def _kubelet_config(folder: Path, site: Site) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": site.address,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{folder}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{site.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        # The disk is the machine's: what others leave of it is no reason to evict a test's Pod.
        "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": f"{folder}/resolv.conf",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        # How often it is told what a device plugin offers; with the default of 10 s every change costs a test 5 s.
        "nodeStatusUpdateFrequency": "1s",
        "podLogsDir": f"{folder}/{POD_LOGS}",
        "volumePluginDir": f"{folder}/volume-plugins",
        "maxPods": 200,
    }
