"""The Helm chart, rendered by the Helm that the harness builds, and its policies once they are in effect."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness.api_writer import ADMIN, Answer, Login
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_NAMESPACE, AGENT_SERVICE_ACCOUNT

CHART = Path(__file__).parents[2] / "helm" / "closeknit"
REGISTRY = "--set=image.registry=registry.example.com"  # the chart has none of its own, and is refused without
NAMESPACE = AGENT_NAMESPACE
AGENT_USER = f"system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_SERVICE_ACCOUNT}"
OPERATOR_USER = f"system:serviceaccount:{NAMESPACE}:closeknit-operator"
POLICIES_TIMEOUT_S = 60  # the API server compiles a new policy within a few seconds


class HelmError(Exception):
    """Helm refused; the message holds its words."""


def helm(program: Path, *arguments: str) -> str:
    """What helm prints on standard output, with nothing read from or left in the home folder."""
    with tempfile.TemporaryDirectory(prefix="closeknit-helm-") as home:
        done = subprocess.run(
            [program, *arguments],
            env={"PATH": os.environ.get("PATH", ""), "HOME": home},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise HelmError((done.stdout + done.stderr).strip())
    return done.stdout


def render(program: Path, *options: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The chart's objects, in the order in which Helm installs them; `options` are those of `helm template`. What only
    `helm test` makes is not among them.

    Images are of a registry that is nowhere, unless the options name another or bring a file of values.
    """
    has_file = any(option.startswith("--values") for option in options)
    text = _rendered(program, options if has_file else (REGISTRY, *options), namespace)
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


@cache
def _rendered(program: Path, options: tuple[str, ...], namespace: str) -> str:
    return helm(program, "template", "closeknit", str(CHART), "--skip-tests", f"--namespace={namespace}", *options)


_MARKED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "namespace": "default", "labels": {"closeknit.dev/job": "probe"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@contextmanager
def prefix_lifted(cluster: LocalCluster) -> Iterator[None]:
    """For as long as it lasts, anybody may set labels and annotations under our prefix, as where no policy is."""
    kind = "validatingadmissionpolicybinding"
    stored = [cluster.get(kind, name) for name in ("closeknit-prefix", "closeknit-prefix-status")]
    cluster.kubectl("delete", kind, *(each["metadata"]["name"] for each in stored))
    cluster.wait_for(lambda: not _is_refused(cluster, _MARKED), "the policy to be lifted")
    try:
        yield
    finally:
        for each in stored:
            metadata = {"name": each["metadata"]["name"], "labels": each["metadata"]["labels"]}
            cluster.apply({**each, "metadata": metadata})
        refused = "the policy to be back"
        cluster.wait_for(lambda: _is_refused(cluster, _MARKED), refused, POLICIES_TIMEOUT_S)


def wait_for_policies(cluster: LocalCluster, node: str) -> None:
    """Returns once the policies of the chart refuse what they must. `node` exists; nothing is stored."""
    ours = {"apiVersion": "closeknit.dev/v1alpha1", "metadata": {"name": "probe"}}
    job = ours | {"kind": "TrainingJob", "spec": {"gpus": 1, "template": {"spec": {"hostNetwork": True}}}}
    topology = ours | {"kind": "NodeTopology", "spec": {"source": {"method": "Simulated"}, "gpus": []}}
    agent = Login(AGENT_USER)  # impersonated, so that no claim says which node it runs on
    label = {"metadata": {"labels": {"closeknit.dev/probe": "true"}}}

    def all_refuse() -> bool:
        return (
            _is_refused(cluster, job)
            and _is_refused(cluster, topology, agent)
            and _is_policys(cluster.writer.patch("node", node, label, login=agent, dry_run=True))
            and _is_refused(cluster, _MARKED)
            and _is_refused(cluster, _MARKED, Login(OPERATOR_USER))
        )

    cluster.wait_for(all_refuse, "the chart's policies to be in effect", POLICIES_TIMEOUT_S)


def _is_refused(cluster: LocalCluster, body: dict[str, Any], login: Login = ADMIN) -> bool:
    return _is_policys(cluster.writer.create(body, login=login, dry_run=True))


def _is_policys(answer: Answer) -> bool:
    return "ValidatingAdmissionPolicy" in answer.refusal  # other refusals: RBAC is not in effect yet
