"""What `closeknit env` shows of a trainer: every variable, its value, whose it is, and why."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner, Result

from closeknit.cli.env.command import EnvArguments, show
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.main import app
from faults.http_server import serving
from scenarios.manifests import Manifest, booked, node, node_topology, training_job

ENV = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_ALGO", "value": "Ring"},
       {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]  # fmt: skip
SPEC: dict[str, Any] = {
    "gpus": 16,
    "template": {"spec": {"containers": [{"name": "trainer", "image": "i", "env": ENV}]}},
}


def objects(*, held: bool = True) -> list[Manifest]:
    nodes = [node(name) for name in ("gpu-1", "gpu-2")]
    placement = booked(("gpu-1", range(8)), ("gpu-2", range(8))) if held else None
    return [*nodes, *(node_topology(each["metadata"]["name"]) for each in nodes),
            training_job(spec=SPEC, placement=placement)]  # fmt: skip


def run(folder: Path, found: list[Manifest], *arguments: str) -> Result:
    (folder / "cluster").write_text(yaml.safe_dump_all(found))
    return CliRunner().invoke(app, ["env", *arguments, "--cluster", str(folder / "cluster")])


def shown(folder: Path, *arguments: str) -> dict[str, Any]:
    result = run(folder, objects(), "train", "-n", "team-b", "-o", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_every_variable_has_a_value_an_owner_and_a_reason(tmp_path: Path) -> None:
    answer = shown(tmp_path, "--node-rank", "1")
    variables = {each["name"]: each for each in answer["variables"]}
    assert (answer["job"], answer["node"], answer["nodeRank"]) == ("team-b/train", "gpu-2", 1)
    assert variables["PET_NODE_RANK"] == {
        "name": "PET_NODE_RANK",
        "value": "1",
        "setter": "closeknit",
        "why": "nodes are ordered so that neighbours are near",
    }
    assert all(each["why"] for each in answer["variables"] if each["setter"] == "closeknit")
    assert variables["NCCL_DEBUG"] == {
        "name": "NCCL_DEBUG",
        "value": "INFO",
        "setter": "template",
        "why": "closeknit would set WARN: errors with their reason, nothing else",
    }
    assert variables["TOKEN"]["value"] == "<secretKeyRef>"
    assert [warning.partition(":")[0] for warning in answer["warnings"]] == ["NCCL_ALGO=Ring"]
    assert "NCCL_PROTO" in answer["leftToNCCL"]
    assert "NCCL_ALGO" not in answer["leftToNCCL"]  # the template has not left it


def test_people_get_a_table(tmp_path: Path) -> None:
    result = run(tmp_path, objects(), "train", "-n", "team-b")
    lines = result.stdout.splitlines()
    assert lines[0] == "team-b/train, node rank 0 on gpu-1"
    assert lines[1].split() == ["VARIABLE", "VALUE", "SET", "BY", "WHY"]
    assert any(line.startswith("warning: NCCL_ALGO=Ring: ") for line in lines)
    assert "ranks of different nodes talk over TCP: gpu-1, gpu-2 have no RDMA NIC that NCCL could use" in lines
    assert lines[-1].startswith("left to NCCL: ")


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (None, {"NCCL_RAS_ENABLE": "read by NCCL 2.24 and later", "NCCL_CTA_POLICY": "read by NCCL 2.29 and later"}),
        (
            "2.28.9",
            {
                "NCCL_RAS_ENABLE": "",
                "NCCL_CTA_POLICY": "read by NCCL 2.29 and later, and not by the 2.28.9 of its Pods",
            },
        ),
        ("2.30.7", {"NCCL_RAS_ENABLE": "", "NCCL_CTA_POLICY": ""}),
    ],
)
def test_which_nccl_reads_a_variable_is_told_unless_that_of_the_pods_does(
    tmp_path: Path, version: str | None, told: dict[str, str]
) -> None:
    env = [{"name": "NCCL_RAS_ENABLE", "value": "1"}, {"name": "NCCL_CTA_POLICY", "value": "ZERO"}]
    found = objects()
    found[-1]["spec"] = {**SPEC, "template": {"spec": {"containers": [{"name": "trainer", "image": "i", "env": env}]}}}
    if version is not None:
        found[-1]["status"]["environment"] = {"ncclVersion": version}
    answer = json.loads(run(tmp_path, found, "train", "-n", "team-b", "-o", "json").stdout)
    assert answer["ncclVersion"] == version
    variables = {each["name"]: each["why"] for each in answer["variables"]}
    assert {name: variables[name] for name in told} == told
    page = run(tmp_path, found, "train", "-n", "team-b").stdout
    assert (f"NCCL in its Pods: {version}" in page) is (version is not None)
    assert ("warning: NCCL_CTA_POLICY=ZERO: its Pods have NCCL 2.28.9" in page) is (version == "2.28.9")


def test_a_job_that_is_only_a_file_shows_what_it_would_get(tmp_path: Path) -> None:
    job = training_job(name="asked", namespace="ml", spec=SPEC)
    (tmp_path / "job").write_text(json.dumps({**job, "metadata": {"name": "asked", "namespace": "ml"}, "status": {}}))
    result = run(tmp_path, objects(held=False)[:-1], "-f", str(tmp_path / "job"))
    assert result.stdout.splitlines()[0] == "ml/asked, node rank 0 on gpu-1"


@pytest.mark.parametrize("gpus", [8, 32], ids=["fits", "does not fit"])
def test_the_file_of_a_booked_job_shows_what_it_would_get_in_its_place(tmp_path: Path, gpus: int) -> None:
    (tmp_path / "job").write_text(json.dumps(training_job(spec={**SPEC, "gpus": gpus})))
    result = run(tmp_path, objects(), "-f", str(tmp_path / "job"))
    held = "team-b/train is placed already (16 GPUs on 2 nodes, gpu-1, gpu-2), with another spec; "
    if gpus == 32:
        words = "the job of the file, in its place, does not fit: InsufficientGPUs"
        assert (result.exit_code, f"{held}{words}" in result.stderr) == (2, True)
        return
    assert result.stdout.splitlines()[:2] == [
        f"{held}if the job of the file replaced it:",
        "team-b/train, node rank 0 on gpu-1",
    ]
    as_json = json.loads(run(tmp_path, objects(), "-f", str(tmp_path / "job"), "-o", "json").stdout)
    assert as_json["booked"] == {"nodes": ["gpu-1", "gpu-2"], "gpus": 16, "sameSpec": False}


@pytest.mark.parametrize(
    ("found", "arguments", "words"),
    [
        (objects(), ["train", "-n", "team-b", "--node-rank", "2"], "has node ranks 0 to 1, and none of 2"),
        (objects(), ["train", "-n", "team-b", "--node-rank", "-1"], "has node ranks 0 to 1, and none of -1"),
        (objects(), ["train"], "has no TrainingJob default/train"),
        (objects(held=False), ["train", "-n", "team-b"], "team-b/train holds no GPUs: nothing is booked for it"),
        (objects(), [], "give the name of a job, or --filename and --cluster"),
        ([*objects()[:2], *objects()[3:]], ["train", "-n", "team-b"], "is no longer what was booked"),
    ],
    ids=["a rank too many", "a rank below 0", "no such job", "not booked", "no name", "a lost machine"],
)
def test_what_cannot_be_shown_is_refused(
    tmp_path: Path, found: list[Manifest], arguments: list[str], words: str
) -> None:
    result = run(tmp_path, found, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def in_each(*namespaces: str) -> list[Manifest]:
    *others, job = objects()
    return [*others, *({**job, "metadata": {**job["metadata"], "namespace": each}} for each in namespaces)]


def ask(folder: Path, found: list[Manifest], reach: Reach) -> None:
    """Of an API server with these objects, whose kubeconfig has the namespace of-context."""

    async def answer(request: web.Request) -> web.Response:
        *_, collection = parts = request.path.split("/")
        if "trainingjobs" in parts[:-1]:
            wanted = {"namespace": parts[-3], "name": parts[-1]}
            one = [each for each in found if wanted.items() <= each["metadata"].items()]
            return web.json_response(one[0] if one else {"kind": "Status", "code": 404}, status=200 if one else 404)
        if collection == "trainingjobs":
            assert request.query["fieldSelector"] == "metadata.name=train"
        items = [each for each in found if f"{each['kind'].lower()}s".replace("ys", "ies") == collection]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def main() -> None:
        async with serving(answer, folder):
            file = folder / "kubeconfig"
            config = json.loads(file.read_text())
            config["contexts"].append({"name": "d", "context": {**config["contexts"][0]["context"], "namespace": "d"}})
            config["contexts"][0]["context"]["namespace"] = "of-context"
            file.write_text(json.dumps(config))
            await show(EnvArguments("train", None, None, replace(reach, kubeconfig=file), 0), is_json=False)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reach", "job"),
    [
        (Reach(), "of-context/train"),
        (Reach(namespace="ml"), "ml/train"),
        (Reach(context="d"), "d/train"),
        (Reach(context="d", namespace="ml"), "ml/train"),
    ],
    ids=["of the context", "by -n", "of another context", "by -n in another context"],
)
def test_a_job_is_looked_for_where_kubectl_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reach: Reach, job: str
) -> None:
    ask(tmp_path, in_each("default", "of-context", "ml", "d"), reach)
    assert capsys.readouterr().out.startswith(f"{job}, node rank 0 on gpu-1\n")


def test_a_job_is_looked_for_in_all_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(tmp_path, in_each("ml"), Reach(everywhere=True))
    assert capsys.readouterr().out.startswith("ml/train, node rank 0 on gpu-1\n")
    assert run(tmp_path, in_each("ml"), "train", "-A").stdout.startswith("ml/train, ")
    several = "has a TrainingJob train in each of b, ml: name one by --namespace"
    with pytest.raises(NotThere, match=f"the cluster {several}"):
        ask(tmp_path, in_each("ml", "b"), Reach(everywhere=True))
    assert several in run(tmp_path, in_each("ml", "b"), "train", "-A").stderr
    with pytest.raises(NotThere, match="the cluster has no TrainingJob train in any namespace"):
        ask(tmp_path, in_each(), Reach(everywhere=True))
    with pytest.raises(NotThere, match="the cluster has no TrainingJob of-context/train"):
        ask(tmp_path, in_each("ml"), Reach())


def test_a_file_may_leave_its_namespace_to_the_command(tmp_path: Path) -> None:
    made = training_job(name="asked", spec=SPEC)
    job = {**made, "metadata": {"name": "asked"}, "status": {}}
    (tmp_path / "job").write_text(json.dumps(job))
    free = objects(held=False)[:-1]
    assert run(tmp_path, free, "-f", str(tmp_path / "job"), "-n", "ml").stdout.startswith("ml/asked, ")
    (tmp_path / "job").write_text(json.dumps({**job, "metadata": {"name": "asked", "namespace": "b"}}))
    refused = run(tmp_path, free, "-f", str(tmp_path / "job"), "-n", "ml")
    assert (refused.exit_code, "metadata.namespace: is 'b', and --namespace is 'ml'" in refused.stderr) == (2, True)


def test_a_hostile_value_moves_no_cursor(tmp_path: Path) -> None:
    found = objects()
    found[-1]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "NCCL_ALGO", "value": "\x1b[2J\n" * 9}]
    result = run(tmp_path, found, "train", "-n", "team-b")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
