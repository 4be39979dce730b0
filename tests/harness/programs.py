"""The command line of each program of the test control plane, and the files that they read.

All paths are relative to the cluster's folder, in which the supervisor starts them. etcd listens on a socket file there
and the controller manager, the scheduler and kwok on nothing, so that the API server's is the only port.
"""

import shutil
import sys
from pathlib import Path

from harness.build import Binaries
from harness.certificates import Authority, signing_key
from harness.kubectl import kubeconfig_text, write_private
from harness.node.site import API_ADDRESS, CLUSTER_DOMAIN

CONFIG = Path(__file__).parent / "config"
SWITCH = Path(__file__).parent / "node" / "switch.py"
SERVICE_ADDRESSES = "10.96.0.0/16"  # of ClusterIP Services; only where there are nodes something routes one of them
ADMINS = ["system:masters"]
KWOK_NODES = "kwok.x-k8s.io/node=fake"  # the annotation of the nodes that kwok plays; others are left alone

SCHEDULER_CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
# The default of 50 and 100 alone makes a gang of 512 Pods take 9 s, and 40 s with DRA (measured on 2 cores).
clientConnection: {kubeconfig: scheduler.kubeconfig, qps: 500, burst: 1000}
"""


# The API server reaches kubelets and webhooks by the switch (harness/node/switch.py).
EGRESS_CONFIG = """\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: nodes.sock}}}
"""


# Names of Services and of the Pods behind headless ones; there are no others, and nobody outside is asked.
COREFILE = f"""\
.:53 {{
  errors
  kubernetes {CLUSTER_DOMAIN} {{
    kubeconfig dns.kubeconfig
    ttl 1
  }}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def write_files(folder: Path, server: str) -> Authority:
    """Writes everything the programs read: certificates, kubeconfigs, the audit policy, the scheduler's settings.

    Gives the authority that signed the certificates.
    """
    authority = Authority()
    tokens = signing_key()
    admin = authority.client("admin", ADMINS)
    serving = authority.server(["127.0.0.1", "localhost", "kubernetes.default.svc", API_ADDRESS])
    files: dict[str, bytes | str] = {
        "ca.crt": authority.certificate,
        "apiserver.crt": serving.public,
        "apiserver.key": serving.private,
        "admin.crt": admin.public,
        "admin.key": admin.private,
        "tokens.pub": tokens.public,
        "tokens.key": tokens.private,
        "scheduler.yaml": SCHEDULER_CONFIG,
        "egress.yaml": EGRESS_CONFIG,
        "Corefile": COREFILE,
        # It runs where the API server is known by its Service's address.
        "dns.kubeconfig": kubeconfig_text(
            f"https://{API_ADDRESS}", authority.certificate, authority.client("coredns", ADMINS)
        ),
    }
    for name, content in files.items():
        write_private(folder / name, content)
    for file, login in (
        ("admin", admin),
        ("controller-manager", authority.client("system:kube-controller-manager")),
        ("scheduler", authority.client("system:kube-scheduler")),
        ("kwok", authority.client("kwok", ADMINS)),
    ):
        write_private(folder / f"{file}.kubeconfig", kubeconfig_text(server, authority.certificate, login))
    for config in ("audit-policy.yaml", "kwok.yaml"):
        shutil.copy(CONFIG / config, folder / config)
    return authority


def etcd(binaries: Binaries) -> list[str]:
    """A single member that never waits for the disk: the data is worth nothing after the test."""
    return [
        str(binaries.etcd),
        "--data-dir=etcd",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--listen-client-urls=unix://etcd.sock",
        # Nobody connects to these two, but etcd wants them; port 0 lets the kernel choose.
        "--advertise-client-urls=http://127.0.0.1:0",
        "--listen-peer-urls=http://127.0.0.1:0",
    ]


TAINT_RULES = ("--feature-gates=DRADeviceTaintRules=true",)
SERVED_RULES = ("--runtime-config=resource.k8s.io/v1beta2=true",)  # beta of 1.36, where it is off
TAINT_RULES_SINCE = (1, 37)  # the Kubernetes that serves DeviceTaintRules by itself, as v1
NO_TAINT_RULES_BEFORE = (1, 36)  # 1.35 serves v1alpha3 alone, and 1.34 does not know the gate


def kube_apiserver(binaries: Binaries, port: int, *, with_nodes: bool) -> list[str]:
    """RBAC, ServiceAccount and owner-reference admission as in a real cluster, and an audit log of all writes.

    With real nodes it knows kubelets by their names, and reaches them.
    """
    admission = ["OwnerReferencesPermissionEnforcement"]
    authorizers = ["RBAC"]
    for_nodes: list[str] = []
    if with_nodes:
        admission.append("NodeRestriction")
        authorizers.insert(0, "Node")
        for_nodes = [
            "--egress-selector-config-file=egress.yaml",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-client-certificate=admin.crt",
            "--kubelet-client-key=admin.key",
        ]
    return [
        str(binaries.kube_apiserver),
        "--etcd-servers=unix://etcd.sock",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",  # the owner keeps the port reserved by being bound to it too
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        "--tls-cert-file=apiserver.crt",
        "--tls-private-key-file=apiserver.key",
        "--client-ca-file=ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=tokens.pub",
        "--service-account-signing-key-file=tokens.key",
        f"--authorization-mode={','.join(authorizers)}",
        f"--enable-admission-plugins={','.join(admission)}",
        "--allow-privileged",
        "--audit-policy-file=audit-policy.yaml",
        "--audit-log-path=audit.log",
        "--audit-log-maxsize=100000",  # MB; never start a second file
        "--shutdown-delay-duration=0s",
        *for_nodes,
    ]


def switch(port: int) -> list[str]:
    """The network of the real nodes, which reaches the API server on this port, and which it reaches by a socket."""
    return [sys.executable, "-I", "-S", str(SWITCH), str(port), "nodes.sock"]


def dns(coredns: Path, network: str) -> list[str]:
    """The cluster's DNS, in the nodes' network."""
    return ["nsenter", f"--net={network}", str(coredns), "-conf=Corefile", "-quiet"]


def kube_controller_manager(binaries: Binaries) -> list[str]:
    """All stock controllers, each under its own ServiceAccount: the audit log then names the one that wrote."""
    return [
        str(binaries.kube_controller_manager),
        "--kubeconfig=controller-manager.kubeconfig",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials",
        "--service-account-private-key-file=tokens.key",
        "--root-ca-file=ca.crt",
        "--flex-volume-plugin-dir=flexvolume",  # else it makes one under /usr/libexec
        "--kube-api-qps=500",  # the default of 20 would let the garbage collector take 25 s for a gang of 512
        "--kube-api-burst=1000",
    ]


def kube_scheduler(binaries: Binaries) -> list[str]:
    """The stock scheduler, with DRA on as by default."""
    return [str(binaries.kube_scheduler), "--config=scheduler.yaml", "--secure-port=0"]


def kwok(binaries: Binaries) -> list[str]:
    """Plays the kubelets of the annotated nodes."""
    return [
        str(binaries.kwok),
        "--kubeconfig=kwok.kubeconfig",
        "--config=kwok.yaml",
        f"--manage-nodes-with-annotation-selector={KWOK_NODES}",
        "--node-ip=127.0.0.1",
    ]
