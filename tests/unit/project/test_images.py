"""What the Dockerfiles say, and how the images are built where no registry can be reached; nothing is built here."""

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from harness import images, python_base
from harness.images import AGENT, IMAGES, OPERATOR, BuiltLayer, Image, NoImages, context_files, image_archive, layers
from harness.node.image import Layer, write_image
from harness.python_base import VERSION, NoBase, base_digest, base_files, write_base

ROOT = Path(__file__).parents[3]
PROGRAMS = {OPERATOR: "closeknit-operator", AGENT: "closeknit-agent"}


def instructions(image: Image) -> list[str]:
    """The lines of a Dockerfile, those that go on in one, without comments."""
    text = "".join(line for line in image.dockerfile.read_text().splitlines(keepends=True) if line[0] != "#")
    return text.replace("\\\n", "").splitlines()


def stages(image: Image) -> tuple[list[str], list[str]]:
    """The instructions of its build stage, and of what becomes the image."""
    lines = [line for line in instructions(image) if line]
    start, second = (index for index, line in enumerate(lines) if line.startswith("FROM "))
    return lines[start:second], lines[second:]


def small_base() -> dict[str, Path | bytes | str]:
    return {"usr/local/bin/python": "python3", "usr/local/bin/python3": Path("/bin/sh"), "etc/pip.conf": b"cert"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, on a machine where everything is there to build its images but buildah, which is a stand-in."""
    files = {
        ".dockerignore": "*\n!uv.lock\n!src\n",
        "uv.lock": "a",
        "src/one.py": "b",
        "README.md": "c",
        "Dockerfile": f"FROM python:{VERSION}-slim",
    }
    for name, text in files.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    monkeypatch.setattr(images, "ROOT", tmp_path / "project")
    monkeypatch.setattr(images, "base_digest", lambda: "base")
    monkeypatch.setattr(images, "write_base", lambda archive: archive.write_text("base"))
    monkeypatch.setattr(images, "__file__", str(tmp_path / "project" / "Dockerfile"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    pushed = 'for last; do :; done; last=${last#oci-archive:}; : > "${last%%:*}"'
    install_buildah(tmp_path, f'case "$*" in *" push "*) {pushed};; esac')
    return tmp_path


def install_buildah(folder: Path, script: str) -> None:
    program = folder / "bin" / "buildah"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)


def small_image(tree: Path) -> Image:
    return Image("small", tree / "project" / "Dockerfile")


def test_both_stand_on_one_base_that_is_pinned_by_digest() -> None:
    bases = {image: instructions(image)[0] for image in IMAGES}
    assert len(set(bases.values())) == 1
    assert re.fullmatch(r"ARG PYTHON=python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", bases[OPERATOR])
    for image in IMAGES:
        assert [line for line in instructions(image) if line.startswith("FROM ")] == [
            "FROM ${PYTHON} AS build",
            "FROM ${PYTHON}",
        ]


def test_they_are_built_alike() -> None:
    def alike(image: Image, extra: str) -> list[str]:
        return [
            line.replace(PROGRAMS[image], "PROGRAM").replace(f"--extra {extra}", "--extra") for line in stages(image)[0]
        ]

    assert alike(OPERATOR, "operator") == alike(AGENT, "agent")


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.program)
def test_an_image_runs_one_program_as_no_root(image: Image) -> None:
    final = stages(image)[1]
    assert [line for line in final if line.startswith("RUN ")] == []  # so that other architectures need no emulation
    assert final[-1] == f'ENTRYPOINT ["{PROGRAMS[image]}"]'  # a program, no shell: it gets the signals
    assert [line for line in final if line.startswith("USER ")] == ["USER 1000:1000"]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.program)
def test_its_packages_are_those_of_the_lock(image: Image) -> None:
    syncs = re.findall(r"uv sync ([^&]+)", image.dockerfile.read_text())
    assert len(syncs) == 2
    assert all("--locked --no-dev" in sync for sync in syncs)


def test_versions_are_said_once_elsewhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    makefile = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert makefile is not None
    for image in IMAGES:
        text = image.dockerfile.read_text()
        assert f'org.opencontainers.image.version="{project["version"]}"' in text
        assert f'org.opencontainers.image.licenses="{project["license"]}"' in text
        assert f" uv=={makefile[1]}\n" in text


def test_a_builder_is_sent_what_the_dockerfiles_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    for image in IMAGES:
        copied = [line.split()[1:-1] for line in stages(image)[0] if line.startswith("COPY ")]
        assert {path for paths in copied for path in paths} == let_through
    assert "**/__pycache__" in lines
    sent = {path.relative_to(ROOT).parts[0] for path in context_files()}
    assert sent == {path.partition("/")[0] for path in let_through}


def test_an_image_is_built_once_and_again_when_what_it_is_made_of_changes(tree: Path) -> None:
    def built() -> int:
        return (tree / "calls").read_text().count(" build ") if (tree / "calls").exists() else 0

    image = small_image(tree)
    first = image_archive(image)
    assert first.is_file()
    assert (image_archive(image), built()) == (first, 1)
    (tree / "project" / "README.md").write_text("not sent")
    (tree / "project" / "src" / "__pycache__").mkdir()
    (tree / "project" / "src" / "__pycache__" / "one.pyc").write_text("not sent")
    assert (image_archive(image), built()) == (first, 1)
    for count, file in enumerate(("uv.lock", "src/one.py", "src/new.py", "Dockerfile", ".dockerignore"), start=2):
        with (tree / "project" / file).open("a") as change:
            change.write("\n# changed")
        assert image_archive(image) != first
        assert built() == count


def test_an_image_of_another_base_is_another(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = image_archive(small_image(tree))
    monkeypatch.setattr(images, "base_digest", lambda: "another")
    assert image_archive(small_image(tree)) != first


def test_the_archives_that_were_used_last_are_kept(tree: Path) -> None:
    def built(number: int) -> Path:
        (tree / "project" / "uv.lock").write_text(str(number))
        return image_archive(small_image(tree))

    archives = [built(number) for number in range(6)]
    for age_s, archive in enumerate(reversed(archives)):
        os.utime(archive, (1000 - age_s, 1000 - age_s))
    assert built(0) == archives[0]  # used again
    newest = built(6)
    assert set((tree / "cache" / "closeknit" / "images").glob("*.tar")) == {archives[0], *archives[2:], newest}


def test_a_build_that_fails_says_why_and_leaves_no_archive(tree: Path) -> None:
    install_buildah(tree, 'case "$*" in *" build "*) echo "no such package"; exit 1;; esac')
    with pytest.raises(NoImages, match=r"^buildah build failed:\nno such package$"):
        image_archive(small_image(tree))
    assert list((tree / "cache").rglob("*.tar")) == [tree / "cache" / "closeknit" / "images" / "work" / "base.tar"]


def test_what_is_missing_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoImages, match="need root and buildah"):
        image_archive(small_image(tree))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(images, "VERSION", "3.9")
    with pytest.raises(NoImages, match=r"Dockerfile is for another Python than this machine's 3\.9$"):
        image_archive(small_image(tree))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NoImages, match="need root and buildah"):
        image_archive(small_image(tree))


def test_a_base_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_base, "base_files", small_base)
    digests = []
    for name in ("one", "two"):
        write_base(tmp_path / name)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
        os.utime(tmp_path / "one", (1, 1))
    assert digests[0] == digests[1]
    before = base_digest()
    monkeypatch.setattr(python_base, "base_files", lambda: {**small_base(), "etc/pip.conf": b"another"})
    assert base_digest() != before


def test_a_base_has_what_the_official_one_has() -> None:
    try:
        files = base_files()
    except NoBase as reason:
        pytest.skip(str(reason))
    library = f"usr/local/lib/python{VERSION}"
    assert {f"{library}/os.py", f"{library}/site-packages/pip/__main__.py", "usr/local/bin/python", "bin/sh"} <= set(
        files
    )
    assert not [path for path in files if path.endswith(".pyc") or "/test/" in path]
    assert [path for path in files if Path(path).name == "libc.so.6"] != []
    assert [path for path, what in files.items() if isinstance(what, Path) and not what.is_file()] == []
    assert files["usr/local/bin/python3"] == f"python{sys.version_info.major}.{sys.version_info.minor}"


def test_layers_are_read_from_an_archive(tmp_path: Path) -> None:
    layer = Layer()
    layer.add_file("one", b"12345")
    layer.add_file("two", b"678")
    write_image(tmp_path / "image.tar", "localhost/one:1", layer, ["/one"])
    (found,) = layers(tmp_path / "image.tar")
    assert found == BuiltLayer(found.digest, 8, "harness.node.image")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", found.digest)
