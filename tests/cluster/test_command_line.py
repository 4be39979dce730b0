"""The command line against a real API server and a real operator, as an administrator and as a tenant with `view`."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from closeknit.cli.main import app
from closeknit.cli.status.glance import NO_RIGHT
from harness.certificates import KeyPair
from harness.operator_bed import ON_PLUGIN, PLUGIN_NODES, Bed


def run(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments, "--kubeconfig", str(kubeconfig)], env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout + result.stderr


def answer(kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    code, text = run(kubeconfig, *arguments, "-o", "json")
    assert code == 0, text
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def tenant(bed: Bed) -> Path:
    """Whoever has the built-in role `view` in the story's namespace, and no other right."""
    bed.cluster.kubectl("create", "serviceaccount", "tenant", f"--namespace={bed.namespace}")
    bed.cluster.kubectl(
        "create", "rolebinding", "tenant", "--clusterrole=view", f"--serviceaccount={bed.namespace}:tenant",
        f"--namespace={bed.namespace}",
    )  # fmt: skip
    return bed.cluster.service_account_kubeconfig(bed.namespace, "tenant")


def plan_of_his_own_job(bed: Bed, tenant: Path) -> None:
    """Who may only view his namespace is told what he lacks; with that he plans."""
    job = bed.job("huge")
    body = {key: job[key] for key in ("apiVersion", "kind", "spec")}
    file = bed.cluster.directory / "huge.json"
    file.write_text(json.dumps({**body, "metadata": {"name": "planned", "namespace": bed.namespace}}))
    code, text = run(tenant, "plan", "-f", str(file))
    assert (code, "bind you to the ClusterRole closeknit-planner" in text) == (2, True), text
    bound = f"planner-{bed.namespace}"
    bed.cluster.kubectl(
        "create", "clusterrolebinding", bound, "--clusterrole=closeknit-planner",
        f"--serviceaccount={bed.namespace}:tenant",
    )  # fmt: skip
    try:
        code, text = run(tenant, "plan", "-f", str(file))
        assert (code, "does not fit: InsufficientGPUs" in text) == (3, True), text
        assert "closeknit.dev/v1alpha1" in run(tenant, "snapshot")[1]
    finally:
        bed.cluster.kubectl("delete", "clusterrolebinding", bound)


def test_a_tenant_sees_his_own_and_an_administrator_the_cluster(bed: Bed, tenant: Path) -> None:
    admin, here = bed.cluster.kubeconfig, ("-n", bed.namespace)
    bed.submit("train", **ON_PLUGIN)
    bed.submit("huge", gpus=512)
    bed.wait_for_state("Running")
    bed.wait_for_reason("InsufficientGPUs", "huge")

    for who in (admin, tenant):
        lines = run(who, "jobs", *here)[1].splitlines()
        assert [line.split()[:3] for line in lines[1:]] == [["train", "Running", "16"], ["huge", "Queued", "512"]]
        told = answer(who, "explain", "train", *here)
        assert (told["state"], told["where"]["nodes"], {each["status"] for each in told["pods"]}) == (
            "Running", 2, {"Running"},
        )  # fmt: skip
        told = answer(who, "explain", "huge", *here)
        assert (told["reason"], told["nextStep"]["code"]) == ("InsufficientGPUs", "InsufficientGPUs")
        ranks = answer(who, "ranks", "train", *here)["items"]
        assert [(each["rank"], each["podStatus"]) for each in ranks] == [(rank, "Running") for rank in range(16)]
        assert {each["node"] for each in ranks} == set(PLUGIN_NODES) and len({each["uuid"] for each in ranks}) == 16
        assert "there are huge, train" in run(who, "explain", "nope", *here)[1]

    told = answer(tenant, "status", *here)
    assert (told["cluster"], told["clusterNotShown"]) == (None, NO_RIGHT)
    assert told["jobs"]["states"] == {"Running": 1, "Queued": 1}
    assert run(tenant, "jobs", "-A")[0] == 2

    plan_of_his_own_job(bed, tenant)

    told = answer(admin, "status", *here)  # there is no ClusterTopology: the command counts
    glance = told["cluster"]
    assert (glance["nodes"], sum(glance["gpus"].values()), glance["gpus"]["held"]) == (4, 32, 16)
    assert glance["jobs"]["states"]["Running"] >= 1
    assert {each["reason"] for each in glance["jobs"]["waiting"]} >= {"InsufficientGPUs"}

    bed.change("trainingjob", "train", {"spec": {"suspend": True}})
    bed.wait_for_state("Suspended")
    assert "next step: set spec.suspend: false to go on" in run(tenant, "explain", "train", *here)[1]


def test_a_program_of_the_kubeconfig_logs_in_and_a_certificate_that_has_expired_is_told(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a token, and by a certificate, in a file or of a program."""
    cluster = bed.cluster
    good = cluster.authority.client("ann", ["system:masters"])
    monkeypatch.setattr("harness.certificates.LIFETIME", timedelta(minutes=-1))
    expired = cluster.authority.client("ann", ["system:masters"])
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    file = tmp_path / "kubeconfig"

    def asked(user: dict[str, Any]) -> tuple[int, str]:
        config["users"] = [{"name": each["name"], "user": user} for each in config["users"]]
        file.write_text(yaml.safe_dump(config))
        return run(file, "jobs", "-n", bed.namespace)

    def by_program(**status: Any) -> dict[str, Any]:
        version = "client.authentication.k8s.io/v1"
        said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        return {"exec": {"apiVersion": version, "command": "echo", "args": [said], "interactiveMode": "Never"}}

    def pair(of: KeyPair) -> dict[str, str]:
        return {"clientCertificateData": of.public.decode(), "clientKeyData": of.private.decode()}

    token = cluster.kubectl("create", "token", "default", f"--namespace={bed.namespace}").strip()
    assert asked(by_program(**pair(good)))[0] == 0
    assert "cannot list resource" in asked(by_program(token=token))[1]  # it is known, and may nothing
    (tmp_path / "crt").write_bytes(expired.public)
    (tmp_path / "key").write_bytes(expired.private)
    for user in (by_program(**pair(expired)), {"client-certificate": "crt", "client-key": "key"}):
        code, told = asked(user)
        assert (code, told.count("\n")) == (2, 1)
        assert re.search(r"^closeknit: cannot ask the cluster: .*: the client certificate of \S+ has expired on ", told)
