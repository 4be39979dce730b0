"""The stock programs that the tests run against: whose they are, what is built of them, and what is published.

The Go module `harness/go` pins those of the control plane and the kubelet: they share most of their code, which is then
compiled once. Those of a node pin other versions of it, and have `harness/go-node`. The control plane of another
Kubernetes is built of the same module by another file of versions, `go/kubernetes-1.37.mod`.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.releases import Release
from harness.toolchain import BuildError

GO_MODULE = Path(__file__).parent / "go"
NODE_MODULE = Path(__file__).parent / "go-node"
DNS_MODULE = Path(__file__).parent / "go-dns"
CHART_MODULE = Path(__file__).parent / "go-chart"
POLICIES_MODULE = Path(__file__).parent / "go-policies"
HELM_3_MODULE = Path(__file__).parent / "go-helm3"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How Go builds a program; programs of one recipe are built by one call."""

    module: Path = GO_MODULE
    tags: tuple[str, ...] = ()
    with_seccomp: bool = False
    """Linked with C's libseccomp, all of it statically: needs a C compiler."""
    versions: str = "go.mod"
    """The module's file that pins versions; its sums are beside it."""

    def is_built_of(self, file: Path) -> bool:
        """Whether a file of the module's folder decides what is built."""
        return file.suffix not in {".mod", ".sum"} or file.stem == Path(self.versions).stem


PLAIN = Recipe()


@dataclass(frozen=True, slots=True)
class Project:
    """One upstream project: which main package is built, and under which names its programs are called."""

    name: str
    module: str  # whose version in go.mod is the project's version
    package: str
    programs: tuple[str, ...]
    releases: tuple[Release, ...]
    """What upstream publishes of it: every program, or none."""
    # Link-time variable -> value; "{version}" etc. are filled in. Without them the programs call themselves "master".
    stamps: Mapping[str, str]
    recipe: Recipe = PLAIN

    @property
    def version(self) -> str:
        """The version that the recipe pins, like "v1.36.3"; v0.0.0 of what is our own."""
        go_mod = self.recipe.module / self.recipe.versions
        if self.package.startswith(f"{self.module}/") and f"module {self.module}\n" in go_mod.read_text():
            return "v0.0.0"
        pinned = re.search(rf"^(?:require)?\s*{re.escape(self.module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
        if pinned is None:
            raise BuildError(f"{go_mod} requires no {self.module}")
        return pinned[1]

    @property
    def key(self) -> str:
        """The name of the cache folder: differs whenever anything differs that the build is made from."""
        digest = hashlib.sha256(repr((self.package, self.programs, sorted(self.stamps.items()))).encode())
        if self.recipe != PLAIN:
            digest.update(repr((self.recipe.tags, self.recipe.with_seccomp)).encode())
        module = self.recipe.module
        for path in sorted(path for path in module.rglob("*") if path.is_file() and self.recipe.is_built_of(path)):
            digest.update(str(path.relative_to(module)).encode() + b"\0" + path.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    @property
    def executable(self) -> str:
        """What Go calls the program that it builds of the package: its last folder that is no major version."""
        return re.sub(r"/v\d+$", "", self.package).rpartition("/")[2]

    @property
    def ldflags(self) -> str:
        """Linker flags: no debug tables (a third of the size), and the version stamped in."""
        version = self.version
        major, minor, _ = version.removeprefix("v").split(".", 2)
        stamps = (f"-X {name}={value}" for name, value in self.stamps.items())
        static = ["-extldflags=-static"] if self.recipe.with_seccomp else []
        return " ".join(["-s", "-w", *static, *stamps]).format(version=version, major=major, minor=minor)


def _kubernetes_stamps(package: str) -> dict[str, str]:
    return {
        f"{package}.gitVersion": "{version}",
        f"{package}.gitMajor": "{major}",
        f"{package}.gitMinor": "{minor}",
        f"{package}.gitCommit": "unknown",
        f"{package}.gitTreeState": "clean",
    }


def _kubernetes_releases(sha256: Mapping[str, Mapping[str, str]]) -> tuple[Release, ...]:
    url = "https://dl.k8s.io/release/{{version}}/bin/linux/{{architecture}}/{program}"
    return tuple(Release(program, url.format(program=program), digests) for program, digests in sha256.items())


KUBERNETES = Project(
    name="kubernetes",
    module="k8s.io/kubernetes",
    package="closeknit.dev/harness/kubernetes",
    programs=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    # `version` and `/version` read the first, the user agent in the audit log the second.
    stamps=_kubernetes_stamps("k8s.io/component-base/version") | _kubernetes_stamps("k8s.io/client-go/pkg/version"),
    # v1.36.3, as kops pins them: pkg/assets/assetdata/k8s-1.36.yaml of kubernetes/kops at 347983e.
    releases=_kubernetes_releases(
        {
            "kube-apiserver": {
                "amd64": "1f217d397234a6d065da663c6e086fdb02c0f0de97a0758ff3e6f3956f4ef8ab",
                "arm64": "16001b9d35d23634c361a1e2b7b0fc7abe186984af697ef7a869c8c8cded78b7",
            },
            "kube-controller-manager": {
                "amd64": "7edfe976d5a06c7a702d653e914095f4a732a04bb2139115b6a6eba6a9b781c7",
                "arm64": "27868a5c822824945b93f2d8a724a5dcd99affc68b47230ae766bff8795bbb84",
            },
            "kube-scheduler": {
                "amd64": "b8955d4518c902110b50a825364339b1fb673822518ce0ba081a69ed634f8eee",
                "arm64": "ca1c7cd0033942bf9ef7eac80e18375d91f6f29487244c3e685f11163b01a88d",
            },
            "kubectl": {
                "amd64": "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336",
                "arm64": "3d86f24401c41ae5a46ac50eef8865fe891d3647d324a0836f6c63757a126e62",
            },
        }
    ),
)
ETCD = Project(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",  # the version that kubeadm installs with this Kubernetes
    package="go.etcd.io/etcd/server/v3",
    programs=("etcd",),
    stamps={},
    # v3.6.8, as kubespray pins it: roles/kubespray_defaults/vars/main/checksums.yml at 46dbdd3.
    releases=(
        Release(
            "etcd",
            "https://github.com/etcd-io/etcd/releases/download/{version}/etcd-{version}-linux-{architecture}.tar.gz",
            {
                "amd64": "cf9cfe91a4856cb90eed9c99e6aee4b708db2c7888b88a6f116281f04b0ea693",
                "arm64": "438f56a700d17ce761510a3e63e6fa5c1d587b2dd4d7a22c179c09a649366760",
            },
            inside="etcd-{version}-linux-{architecture}/etcd",
        ),
    ),
)
KWOK = Project(
    name="kwok",
    module="sigs.k8s.io/kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    programs=("kwok",),
    stamps={},
    # Upstream publishes no list of checksums; these are what others have pinned for v0.8.0.
    releases=(
        Release(
            "kwok",
            "https://github.com/kubernetes-sigs/kwok/releases/download/{version}/kwok-linux-{architecture}",
            {
                "amd64": "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46",
                "arm64": "628f7d277860f524a2a775c217adcc58828e7b59ab0933680315784f1b8b0e37",
            },
        ),
    ),
)
HELM = Project(
    name="helm",
    module="helm.sh/helm/v4",  # the newest of those that are made for the Kubernetes above
    package="helm.sh/helm/v4/cmd/helm",
    programs=("helm",),
    stamps={"helm.sh/helm/v4/internal/version.version": "{version}"},
    # v4.2.4, from the project's own release notes.
    releases=(
        Release(
            "helm",
            "https://get.helm.sh/helm-{version}-linux-{architecture}.tar.gz",
            {
                "amd64": "c306b46f719b0a4da32d0f78ee21bf90ce8d602f15b22ab753f0674d1670a7f3",
                "arm64": "564de2191b881e9f71b5606b25345821ea1682f06ab90499d3ab22b530176da1",
            },
            inside="linux-{architecture}/helm",
        ),
    ),
)
PROJECTS = (KUBERNETES, ETCD, KWOK, HELM)
CHOSEN = "CLOSEKNIT_KUBERNETES"
"""The environment variable that chooses the control plane of a run by its minor version, like 1.37."""
USUAL = "1.36"
OTHERS = tuple(sorted(file.stem.removeprefix("kubernetes-") for file in GO_MODULE.glob("kubernetes-*.mod")))


def kubernetes(minor: str) -> Project:
    """The control plane of a minor version of Kubernetes. Raises BuildError where none is pinned."""
    if minor == USUAL:
        return KUBERNETES
    if minor not in OTHERS:
        raise BuildError(f"{CHOSEN} is {minor}, and pinned are {', '.join(sorted({USUAL, *OTHERS}))}")
    return replace(KUBERNETES, releases=(), recipe=Recipe(versions=f"kubernetes-{minor}.mod"))


def control_plane() -> tuple[Project, ...]:
    """The programs of the control plane that this run is to have. Raises BuildError."""
    return (kubernetes(os.environ.get(CHOSEN) or USUAL), *PROJECTS[1:])


def kubernetes_version() -> tuple[int, int]:
    """Major and minor version of this run's control plane. Raises BuildError."""
    major, minor, _ = control_plane()[0].version.removeprefix("v").split(".", 2)
    return int(major), int(minor)


HELM_3 = Project(
    name="helm3",
    module="helm.sh/helm/v3",  # which many administrators still have
    package="helm.sh/helm/v3/cmd/helm",
    programs=("helm3",),
    stamps={"helm.sh/helm/v3/internal/version.version": "{version}"},
    releases=(),
    recipe=Recipe(HELM_3_MODULE),
)
DNS = Project(
    name="coredns",
    module="github.com/coredns/coredns",
    package="closeknit.dev/harness/dns/coredns",  # upstream's, with the plugins that a test cluster needs
    programs=("coredns",),
    stamps={},
    releases=(),
    recipe=Recipe(DNS_MODULE),
)
"""The DNS of a cluster with real nodes."""
POLICIES = Project(
    name="policies",
    module="github.com/cloudnativelabs/kube-router/v2",
    package="closeknit.dev/harness/policies/policies",  # upstream's controller of them alone
    programs=("policies",),
    stamps={},
    releases=(),
    recipe=Recipe(POLICIES_MODULE),
)
"""What has a node heed NetworkPolicies; built when a test asks for it."""
KUBECONFORM = Project(
    name="kubeconform",
    module="github.com/yannh/kubeconform",
    package="github.com/yannh/kubeconform/cmd/kubeconform",
    programs=("kubeconform",),
    stamps={},
    releases=(),
    recipe=Recipe(CHART_MODULE),
)
"""Judges objects by the schemas of their kinds; a small program of few modules, built when a test asks for it."""
