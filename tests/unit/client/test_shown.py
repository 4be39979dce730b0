"""What the page and the example notebook show runs, against the busy cluster of the examples."""

import ast
import doctest
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from closeknit.client import SeenJob
from closeknit.kube.api import Key, Resource
from closeknit.kube.errors import NotFound
from faults.http_store import HttpStore

ROOT = Path(__file__).parents[3]
JOBS = Resource("closeknit.dev", "v1alpha1", "trainingjobs")
KEY = Key("ml", "notebook")
POD = "notebook-a2-worker-00000"


def test_the_page_is_a_transcript(server: HttpStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    (block,) = (ROOT / "docs/python.md").read_text().split("```pycon\n")[1:]
    found = doctest.DocTestParser().get_doctest(block.partition("```")[0], {}, "docs/python.md", None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(found, out=said.append)
    assert (result.failed, result.attempted > 5) == (0, True), "".join(said)


def run(source: str, names: dict[str, Any]) -> Any:
    """What a notebook would show below the cell."""
    cell = ast.parse(source)
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "cell", "exec"), names)  # noqa: S102 - our own
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last is not None else None  # type: ignore[attr-defined] # noqa: S307


def test_the_notebook_runs(
    server: HttpStore, busy: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the place of an operator, a thread places the job once it is there, and ends it once its log is read."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    status = next(each["status"] for each in busy if each["metadata"]["name"] == "llama-70b")
    server.printed[POD] = [b"2026-11-26T09:00:00.000000001Z step 1\n"]

    def is_there() -> bool:
        try:
            return bool(server.do(lambda: server.store.get(JOBS, KEY)))
        except NotFound:
            return False

    def operate() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not is_there():
            time.sleep(0.02)
        server.set_status(JOBS, KEY, status)
        while time.monotonic() < deadline and not any(POD in each for each in server.asked):
            time.sleep(0.02)
        server.set_status(JOBS, KEY, {**status, "state": "Succeeded"})

    thread = threading.Thread(target=operate)
    thread.start()
    names: dict[str, Any] = {}
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text())
    shown = [run("".join(each["source"]), names) for each in notebook["cells"] if each["cell_type"] == "code"]
    thread.join()
    pages = [each._repr_html_() for each in shown if isinstance(each, SeenJob)]
    assert len(pages) == 2 and pages[1].count("<span ") == 16
    printed = capsys.readouterr().out
    assert "step 1\n" in printed and "ml/notebook: Succeeded\n" in printed
    assert not is_there()
    assert all(not each.get("outputs") for each in notebook["cells"])
