"""Who may not read what a command reads is told which role to ask for, whatever the command."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from closeknit.cli.main import app
from faults.http_server import serving

EXAMPLE = Path(__file__).parents[4] / "examples/tensor-4.yaml"
PLANNER = "the ClusterRole closeknit-planner (the chart's rbac.planners), or give a file of its objects by --cluster"
VIEWER = "the ClusterRole closeknit-topology-viewer (the chart's rbac.topologyViewers)"


async def answer(request: web.Request) -> web.Response:
    """For somebody who may do what is in his namespace."""
    if "/namespaces/" in request.path:
        return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)
    words = f"{request.path.split('/')[-1]} is forbidden"
    return web.json_response({"kind": "Status", "reason": "Forbidden", "message": words, "code": 403}, status=403)


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (("plan", "-f", str(EXAMPLE)), PLANNER),
        (("snapshot",), PLANNER),
        (("env", "train"), PLANNER),
        (("topology",), VIEWER),
        (("topology", "gpu-01"), VIEWER),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else "",
)
def test_a_role_is_named_for_what_one_may_not_read(command: tuple[str, ...], role: str, tmp_path: Path) -> None:
    async def story() -> tuple[int, str]:
        async with serving(answer, tmp_path):
            where = ("--kubeconfig", str(tmp_path / "kubeconfig"))
            found = await asyncio.to_thread(CliRunner().invoke, app, [*command, *where])
            return found.exit_code, found.stderr

    code, told = asyncio.run(story())
    assert code == 2
    assert told.startswith("closeknit: cannot ask the cluster: ") and told.count("\n") == 1
    assert told.endswith(f"Have an administrator bind you to {role}\n")
