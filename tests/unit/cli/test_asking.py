"""What is said where there is no way to the cluster: one line, and no traceback."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.cli.main import app

CONFIG = """
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: "%s"}}]
users: [{name: u, user: {token: x}}]
"""
FILES = {
    "none": (None, "there is no kubeconfig at "),
    "torn": (b"a: [b", " is no kubeconfig that can be used: while parsing"),
    "something else": (b"clusters: 3", " is no kubeconfig that can be used: "),
    "a list": (b"[1, 2]", " is no kubeconfig that can be used: "),
    "no text": (b"\xff\xfe\x00", " is no kubeconfig that can be used: "),
    "no certificate": ((CONFIG % "aGVsbG8=").encode(), "no certificate or crl found"),
    "no base64": ((CONFIG % "aGV").encode(), " is no kubeconfig that can be used: Incorrect padding"),
    "nobody there": (b"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: a, context: "
                     b"{cluster: c}}]\ncurrent-context: a", "Cannot connect|refused|connect"),
}  # fmt: skip


@pytest.mark.parametrize("command", [["env", "train"], ["topology"], ["topology", "gpu-1", "--live"]], ids=" ".join)
@pytest.mark.parametrize(("content", "words"), FILES.values(), ids=FILES.keys())
def test_one_line_says_why_the_cluster_cannot_be_asked(
    command: list[str], content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_bytes(content)
    result = CliRunner().invoke(app, [*command, "--kubeconfig", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("closeknit: cannot ask the cluster: ")
    assert any(each in line for each in words.split("|"))
