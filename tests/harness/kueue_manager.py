"""Kueue's own manager, built from its Go module and started beside a test control plane.

Two modules that it links are not to be had everywhere, those of KubeRay and of LeaderWorkerSet. So it is built without
its integrations of RayCluster, RayJob, RayService and LeaderWorkerSet; its queues, its scheduler and its webhooks of
Workloads are whole.
"""

import inspect
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from harness.build import cache_folder, one_builder
from harness.certificates import Authority
from harness.install import free_port
from harness.kubectl import write_private
from harness.local_cluster import LocalCluster
from harness.toolchain import BuildError, find_go

KUEUE_VERSION = "v0.19.0"
MODULE = "sigs.k8s.io/kueue"
LEFT_OUT = ("raycluster", "rayjob", "rayservice", "leaderworkerset")
CERTIFICATES = "kueue/certificates"  # in the folder that the program is started in
_NOT_TO_BE_HAD = ("github.com/ray-project/kuberay/ray-operator", "sigs.k8s.io/lws")
_CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "0"}}
webhook: {{port: {webhook}, host: 127.0.0.1, certDir: {certificates}}}
leaderElection: {{leaderElect: false}}
internalCertManagement: {{enable: false}}
controller: {{groupKindConcurrency: {{Workload.kueue.x-k8s.io: 1}}}}
clientConnection: {{qps: 100, burst: 200}}
integrations:
  frameworks: [batch/job]
  externalFrameworks: [TrainingJob.v1alpha1.closeknit.dev]
"""


def module_folder(module: str = MODULE, version: str = KUEUE_VERSION) -> Path:
    """Where Go keeps the sources, read-only. Raises BuildError."""
    said = _go("mod", "download", "-json", f"{module}@{version}", cwd=Path.home())
    return Path(json.loads(said)["Dir"])


def built_manager() -> Path:
    """The manager's program, built first where it is missing: some ten minutes on two cores. Raises BuildError."""
    made_of = (LEFT_OUT, _NOT_TO_BE_HAD, CERTIFICATES, inspect.getsource(_leave_out))
    key = f"kueue-{KUEUE_VERSION}-{sha256(repr(made_of).encode()).hexdigest()[:12]}"
    cache = cache_folder()
    program = cache / key / "kueue"
    if not program.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with one_builder(cache, sys.stderr):
            if not program.is_file():
                _build(program, cache / f".{key}.unfinished")
    return program


def _build(program: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    sources = folder / "sources"
    shutil.copytree(module_folder(), sources, ignore=shutil.ignore_patterns("test", "site", "kueueviz", "*_test.go"))
    for path in (sources, *sources.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    _leave_out(sources)
    print(f"building kueue {KUEUE_VERSION}, which takes some ten minutes", file=sys.stderr, flush=True)
    flags = ("-mod=mod", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-p=1")
    _go("build", *flags, f"-o={folder / 'kueue'}", "./cmd/kueue", cwd=sources)
    program.parent.mkdir(exist_ok=True)
    (folder / "kueue").rename(program)
    shutil.rmtree(folder)


def _leave_out(sources: Path) -> None:
    """Takes the four integrations out of the sources, and what links them."""
    jobs = sources / "pkg" / "controller" / "jobs"
    for name in LEFT_OUT:
        shutil.rmtree(jobs / name)
        shutil.rmtree(sources / "pkg" / "util" / "testingjobs" / name, ignore_errors=True)
    linked = jobs / "jobs.go"
    lines = linked.read_text().splitlines(keepends=True)
    linked.write_text("".join(line for line in lines if not line.rstrip('"\n').endswith(LEFT_OUT)))
    validation = sources / "pkg" / "controller" / "jobframework" / "validation.go"
    lines = validation.read_text().splitlines(keepends=True)
    validation.write_text("".join(line for line in lines if not re.search(r"\brayv1\b", line)))
    main = sources / "cmd" / "kueue" / "main.go"  # it knows one place for them, of a container
    main.write_text(main.read_text().replace("/etc/kueue/metrics/certs", CERTIFICATES))
    _go("mod", "edit", *(f"-droprequire={module}" for module in _NOT_TO_BE_HAD), cwd=sources)


def _go(*arguments: str, cwd: Path) -> str:
    ours = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}
    environment = {"GOGC": "400", **os.environ, **ours}
    command = [*find_go(), *arguments]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BuildError(f"go {arguments[0]} for {MODULE} {KUEUE_VERSION} failed:\n{ended.stderr.strip()}")
    return ended.stdout


def all_crds() -> Path:
    """The folder of all definitions that the manager reads."""
    return module_folder() / "config" / "components" / "crd" / "bases"


def start_manager(cluster: LocalCluster) -> int:
    """Process id of a manager on this control plane, whose kinds are served there."""
    folder = cluster.directory / "kueue"
    certificates = cluster.directory / CERTIFICATES
    certificates.mkdir(parents=True)
    authority, port = Authority(), free_port()
    serving = authority.server(["127.0.0.1"])
    write_private(certificates / "tls.crt", serving.public)
    write_private(certificates / "tls.key", serving.private)
    configuration = folder / "configuration.yaml"
    configuration.write_text(_CONFIGURATION.format(health=free_port(), webhook=port, certificates=certificates))
    pid = cluster.start_program(
        "kueue",
        str(built_manager()),
        f"--config={configuration}",
        f"--kubeconfig={cluster.kubeconfig}",
        "--feature-gates=VisibilityOnDemand=false",  # an API of its own, which nothing asks here
        "--zap-log-level=2",
    )
    cluster.wait_for(lambda: _answers(port), "Kueue's webhooks")
    cluster.apply(*_webhooks(port, authority.certificate))
    return pid


def _answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def _webhooks(port: int, certificate: bytes) -> list[dict[str, Any]]:
    """Kueue's own webhooks of Workloads, as its manager serves them here."""
    file = module_folder() / "config" / "components" / "webhook" / "manifests.yaml"
    found = list(yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader))
    for each in found:
        each["metadata"]["name"] = f"kueue-{each['metadata']['name']}"
        each["webhooks"] = [one for one in each["webhooks"] if one["name"] in {"mworkload.kb.io", "vworkload.kb.io"}]
        for one in each["webhooks"]:
            url = f"https://127.0.0.1:{port}{one['clientConfig']['service']['path']}"
            one["clientConfig"] = {"url": url, "caBundle": b64encode(certificate).decode()}
    return found


if __name__ == "__main__":
    try:
        print(built_manager())
    except BuildError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
