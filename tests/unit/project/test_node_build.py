"""The programs of real nodes are built beside the control plane's, each as it has to be, or it is said why not. Go is a
stand-in, and nothing is downloaded."""

import os
import shutil
from pathlib import Path

import pytest

from harness import build
from harness.build import bring
from harness.fake_go import builds, install_go, machine
from harness.node import projects
from harness.node.projects import KUBELET, NODE_PROJECTS, RUNC, NoNodes, main, node_programs
from harness.projects import DNS_MODULE, GO_MODULE, KUBERNETES, NODE_MODULE, PROJECTS
from harness.seccomp import NoCompiler, find_seccomp
from harness.toolchain import BuildError

__all__ = ["machine"]  # a fixture


def test_each_is_built_once_and_as_it_has_to_be(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_seccomp", lambda _: {"PKG_CONFIG_LIBDIR": "there"})
    install_go(machine, then=f'echo "$(basename $PWD) $CGO_ENABLED $PKG_CONFIG_LIBDIR" >> {machine}/calls')
    programs = bring(NODE_PROJECTS)
    assert {name for project in NODE_PROJECTS for name in project.programs} == set(programs)
    assert all(path.is_file() for path in programs.values())
    assert (machine / "calls").read_text().splitlines() == [
        "go 0 ",
        "go-node 1 there",
        "go-node 0 ",
        "go-dns 0 ",
    ]
    assert bring(NODE_PROJECTS) == programs
    assert builds(machine) == len(NODE_PROJECTS)


def test_the_control_plane_is_built_without_them() -> None:
    assert {project.recipe.module for project in PROJECTS} == {GO_MODULE}
    assert not {project.package for project in PROJECTS} & {project.package for project in NODE_PROJECTS}
    assert KUBELET.version == KUBERNETES.version
    assert {project.recipe.module for project in NODE_PROJECTS if project is not KUBELET} == {
        NODE_MODULE,
        DNS_MODULE,
    }


def test_runc_alone_is_static_c() -> None:
    assert [project for project in NODE_PROJECTS if project.recipe.with_seccomp] == [RUNC]
    assert RUNC.ldflags.startswith("-s -w -extldflags=-static -X main.version=v")


def test_every_program_has_the_version_that_is_pinned() -> None:
    assert {project.name: project.version for project in NODE_PROJECTS} == {
        "kubelet": "v1.36.3",
        "runc": "v1.5.2",
        **dict.fromkeys(("containerd", "containerd-shim-runc-v2", "ctr"), "v2.4.2"),
        **dict.fromkeys(("bridge", "loopback", "host-local", "bandwidth", "portmap"), "v1.9.1"),
        **dict.fromkeys(("gpus", "inmate"), "v0.0.0"),  # our own
        "coredns": "v1.14.7",
    }


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main() == 0  # `make test` goes on, and skips
    assert capsys.readouterr().err == "no real nodes here: run as root\n"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoNodes, match=r"^PATH has no ip and no nsenter and no unshare \("):
        node_programs()
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/it")
    monkeypatch.setattr(projects, "CGROUPS", tmp_path / "absent")
    with pytest.raises(NoNodes, match=r"absent cannot be written$"):
        node_programs()


def test_without_a_compiler_there_is_no_runc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match=r"PATH has no cc: install gcc and pkg-config"):
        find_seccomp(tmp_path)


@pytest.mark.parametrize("prefix", ["", "{root}"], ids=["without the root in front", "with it"])
def test_debians_package_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """pkg-config puts PKG_CONFIG_SYSROOT_DIR in front of what it prints, pkgconf does not always."""
    programs = tmp_path / "bin"
    programs.mkdir()
    folder = tmp_path / "unpacked"
    folder.mkdir()
    scripts = {
        "cc": "",
        "pkg-config": f'[ -n "$PKG_CONFIG_LIBDIR" ] && echo {prefix.format(root=folder)}/usr/lib',
        "apt-get": "touch libseccomp-dev.deb",
        "dpkg-deb": "mkdir -p $3/usr/lib/pkgconfig; touch $3/usr/lib/libseccomp.a $3/usr/lib/pkgconfig/libseccomp.pc",
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    assert find_seccomp(folder) == {
        "PKG_CONFIG_LIBDIR": str(folder / "usr/lib/pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(folder),
    }
    (folder / "usr/lib/libseccomp.a").unlink()
    scripts["dpkg-deb"] = "mkdir -p $3/usr/lib/pkgconfig; touch $3/usr/lib/pkgconfig/libseccomp.pc"
    (programs / "dpkg-deb").write_text(f"#!/bin/sh\n{scripts['dpkg-deb']}\n")
    with pytest.raises(BuildError, match="holds no static library"):
        find_seccomp(folder)
