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
    "nested deep": (b"[" * 20000, " is no kubeconfig that can be used: it is nested too deep"),
    "torn": (b"a: [b", " is no kubeconfig that can be used: while parsing"),
    "something else": (b"clusters: 3", "clusters is not a list of entries, each with a name and a cluster"),
    "no entry": (b"users: [{user: {}}]", "users is not a list of entries, each with a name and a user"),
    "a list": (b"[1, 2]", "it is not a mapping with clusters, contexts and users"),
    "a text": (b"root:x:0", "it is not a mapping with clusters, contexts and users"),
    "no text": (b"\xff\xfe\x00", " is no kubeconfig that can be used: "),
    "no certificate": ((CONFIG % "aGVsbG8=").encode(), "no certificate or crl found"),
    "no base64": ((CONFIG % "aGV").encode(), " is no kubeconfig that can be used: Incorrect padding"),
    "nobody there": (b"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: a, context: "
                     b"{cluster: c}}]\ncurrent-context: a", "Cannot connect|refused|connect"),
}  # fmt: skip


COMMANDS = [
    ["env", "train"],
    ["topology"],
    ["topology", "gpu-1", "--live"],
    ["status"],
    ["jobs"],
    ["explain", "train"],
    ["ranks", "train"],
    ["watch", "train"],
    ["logs", "train", "-f"],
    ["snapshot"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
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


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["topology", "--kubeconfig", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (
        2,
        f"closeknit: cannot ask the cluster: kubeconfig {tmp_path} cannot be read: Is a directory; name a file by "
        "--kubeconfig\n",
    )


@pytest.mark.parametrize("way", [["--context", "a"], ["--kubeconfig", "k"], ["--kubeconfig", "k", "--context", "a"]])
@pytest.mark.parametrize(
    "command",
    [
        ["plan", "-f", "job.yaml", "--cluster", "FILE"],
        ["env", "-f", "job.yaml", "--cluster", "FILE"],
        ["env", "train", "--cluster", "FILE"],
        ["status", "--cluster", "FILE"],
        ["jobs", "--cluster", "FILE"],
        ["explain", "train", "--cluster", "FILE"],
        ["ranks", "train", "--cluster", "FILE"],
        ["snapshot", "--cluster", "FILE"],
        ["topology", "--filename", "FILE"],
        ["topology", "--from-smi", "FILE"],
    ],
    ids=" ".join,
)
def test_a_cluster_that_is_named_beside_a_file_of_objects_is_refused(command: list[str], way: list[str]) -> None:
    """It would not be asked, and what is shown would be taken for its own."""
    result = CliRunner().invoke(app, [*command, *way])
    named = " and ".join(each for each in way if each.startswith("--"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"closeknit: with {command[-2]} FILE no cluster is asked, and {named} would change nothing: leave out either\n"
    )
