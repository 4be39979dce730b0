"""`closeknit jobs`, of a file and of an API server that counts what it is asked for."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from closeknit.cli.answers.form import AnswerForm
from closeknit.cli.explain.command import explain
from closeknit.cli.input.given import Reach
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.command import list_jobs
from closeknit.cli.main import app
from closeknit.cli.ranks.command import ranks
from faults.http_server import serving

FILE = Path(__file__).parents[4] / "examples/clusters/busy.yaml"
NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def test_a_table_that_fits_eighty_columns() -> None:
    result = CliRunner().invoke(app, ["jobs", "-A", "--cluster", str(FILE)])
    assert result.stdout.splitlines() == [
        "NAMESPACE  NAME       STATUS     GPUS  NODES  GB/S   FOR  REASON",
        "ml         llama-70b  Running    16    2      360    37m  -",
        "ml         tensor-4   Running    4     1      60/80  37m  -",
        "ml         moe-16     Queued     16    -      -      37m  NoNVLinkIsland",
        "team-b     eval       Queued     16    -      -      12m  InsufficientGPUs",
        "team-b     night      Suspended  8     -      -      12m  -",
        "team-b     vision     Failed     2     -      -      37m  PodFailed",
    ]


def test_of_one_namespace_and_of_an_empty_one() -> None:
    result = CliRunner().invoke(app, ["jobs", "-n", "ml", "--cluster", str(FILE)])
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["NAME", "llama-70b", "tensor-4", "moe-16"]
    result = CliRunner().invoke(app, ["jobs", "--cluster", str(FILE)])
    assert (result.exit_code, result.stdout) == (0, "no TrainingJobs in namespace default\n")


def test_wide_has_the_words() -> None:
    result = CliRunner().invoke(app, ["jobs", "-n", "ml", "-o", "wide", "--cluster", str(FILE)])
    assert "RESTARTS  QUEUE  PRIORITY  STARTS  REASON          MESSAGE" in result.stdout.splitlines()[0]
    assert "needs 16 GPUs in one NVLink island" in result.stdout


@dataclass
class Server:
    """The part of an API server that these commands may ask."""

    may_list_pods: bool = True
    asked: list[str] = field(default_factory=list)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in yaml.safe_load_all(FILE.read_text()) if each["kind"] == kind]

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if "/pods" in request.path:
            if not self.may_list_pods:
                return web.json_response({"kind": "Status", "message": "you may not", "code": 403}, status=403)
            assert "labelSelector=closeknit.dev%2Fjob%3D" in request.path_qs
            return self.page([each for each in self.objects("Pod") if "llama" in each["metadata"]["name"]])
        parts = request.path.split("/")
        jobs = self.objects("TrainingJob")
        assert "trainingjobs" in parts
        if "namespaces" in parts:
            jobs = [each for each in jobs if each["metadata"]["namespace"] == parts[parts.index("namespaces") + 1]]
        if parts[-1] != "trainingjobs":
            found = [each for each in jobs if each["metadata"]["name"] == parts[-1]]
            gone = {"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}
            return web.json_response(found[0] if found else gone, status=200 if found else 404)
        if "as=Table" in request.headers["Accept"]:
            return web.json_response(
                {"kind": "Table", "rows": [{"cells": [each["metadata"]["name"]]} for each in jobs]}
            )
        wanted = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        return self.page([each for each in jobs if wanted in ("", each["metadata"]["name"])])

    def page(self, items: list[dict[str, Any]]) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


def asked(server: Server, folder: Path, command: Any, *arguments: Any) -> None:
    async def main() -> None:
        async with serving(server.answer, folder):
            await command(*arguments)

    asyncio.run(main())


def reach(folder: Path, **options: Any) -> Reach:
    return Reach(folder / "kubeconfig", **options)


def test_a_running_cluster_is_asked_once_and_for_what_its_cache_remembers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    asked(server, tmp_path, list_jobs, reach(tmp_path, everywhere=True), None, AnswerForm.TABLE, NOW)
    assert server.asked == ["/apis/closeknit.dev/v1alpha1/trainingjobs?resourceVersion=0"]
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_the_namespace_is_the_one_where_kubectl_would_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    asked(server, tmp_path, list_jobs, reach(tmp_path), None, AnswerForm.TABLE, NOW)
    assert capsys.readouterr().out == "no TrainingJobs in namespace default\n"
    asked(server, tmp_path, list_jobs, reach(tmp_path, namespace="ml"), None, AnswerForm.JSON, NOW)
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["items"]] == [
        "llama-70b",
        "tensor-4",
        "moe-16",
    ]


@pytest.mark.parametrize("options", [{"namespace": "ml"}, {"everywhere": True}], ids=str)
def test_explain_reads_one_job_and_its_pods(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    asked(server, tmp_path, explain, "llama-70b", reach(tmp_path, **options), None, AnswerForm.WIDE, NOW)
    out = capsys.readouterr().out
    assert out.startswith("ml/llama-70b runs, for ") and "llama-70b-a2-worker-00001  gpu-05  Running" in out
    assert len(server.asked) == 2


def test_who_may_read_jobs_alone_is_told_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(Server(may_list_pods=False), tmp_path, explain, "llama-70b", reach(tmp_path, namespace="ml"), None,
          AnswerForm.JSON, NOW)  # fmt: skip
    assert json.loads(capsys.readouterr().out)["pods"] is None


def test_ranks_have_the_uuids_that_pods_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(Server(), tmp_path, ranks, "llama-70b", reach(tmp_path, namespace="ml"), None, AnswerForm.JSON)
    items = json.loads(capsys.readouterr().out)["items"]
    assert len({each["uuid"] for each in items}) == 16 and {each["podStatus"] for each in items} == {"Running"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"namespace": "ml"}, "there is no TrainingJob nope in namespace ml; there are llama-70b, moe-16, tensor-4"),
        ({"everywhere": True}, "the cluster has no TrainingJob nope in any namespace"),
    ],
    ids=str,
)
def test_a_job_that_is_not_there(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=words):
        asked(Server(), tmp_path, explain, "nope", reach(tmp_path, **options), None, AnswerForm.TABLE, NOW)
