"""What pages, docstrings and comments name is there: files, links, modules, functions, commands of make."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")
# Files of a user, what a command is to write, and other projects' own, which are named by their places there.
OTHERS = re.compile(
    r"(train|sitecustomize|closeknit/__init__|operator/__init__|test_150_[12]|.*/test_150_1)\.py|(jobs|topo|gpu-01)\.svg|table\.md"
    r"|(deepspeed|jax|torch|megatron)/.*|docs/reference/node-labels\.md"
)
FILE = re.compile(r"(?<![\w/.-])([a-z_][\w-]*(?:/[\w.-]+)*\.(?:py|md|tpl|svg|toml))\b")
LINK = re.compile(r"\]\(([^)#:\s\[\]]+)(?:#[^)]*)?\)")
DOTTED = re.compile(r"(?<![\w./-])closeknit(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?")
SIGNATURE = re.compile(r"\b([a-z_]\w+\([^()\n]*\)) ->")
CALL = re.compile(r"\b([A-Za-z_]\w+)\(")
MARKED = re.compile(r"`([^`\n]+)`")


@cache
def files() -> tuple[Path, ...]:
    folders = ("crds", "operator", "node-agent", "helm", "tests", "docs", "examples")
    found = (each for folder in folders for each in (ROOT / folder).rglob("*") if "__pycache__" not in each.parts)
    return (*(each for each in found if each.is_file()), *(each for each in ROOT.iterdir() if each.is_file()))


@cache
def pages() -> tuple[Path, ...]:
    return tuple(each for each in files() if each.suffix == ".md" and each.name != "CHANGELOG.md")  # that is history


@cache
def trees() -> Mapping[Path, ast.Module]:
    return {each: ast.parse(each.read_text()) for each in files() if each.suffix == ".py"}


@cache
def texts() -> Mapping[Path, str]:
    """Of a program its docstrings and comments."""
    return {each: each.read_text() for each in pages()} | {each: "\n".join(_said(each)) for each in trees()}


def _said(program: Path) -> Iterator[str]:
    for node in ast.walk(trees()[program]):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    yield from re.findall(r"(?m)#.*$", program.read_text())


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Where something is named, and what."""
    return ((str(page.relative_to(ROOT)), each) for page, text in texts().items() for each in pattern.findall(text))


def test_every_file_that_is_named_is_there() -> None:
    there = {each.name for each in files()}
    paths = "\n".join(f"/{each.relative_to(ROOT)}\n" for each in files())
    missing = [
        (where, name)
        for where, name in named(FILE)
        if not (f"/{name}\n" in paths if "/" in name else name in there) and not OTHERS.fullmatch(name)
    ]
    assert missing == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    links = [(page, link) for page in pages() for link in LINK.findall(page.read_text())]
    assert len(links) > 100
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_module_that_is_named_is_there() -> None:
    assert [each for each in named(DOTTED) if not each[1].startswith("closeknit.dev") and not _is_there(each[1])] == []


def _is_there(dotted: str) -> bool:
    """Whether it is a package, a module, or spelt in the module that it begins with."""
    parts = dotted.split(".")
    for end in range(len(parts), 1, -1):
        for source in SOURCES:
            place = ROOT.joinpath(source, *parts[:end])
            module = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
            if module.is_file():
                return all(re.search(rf"\b{each}\b", module.read_text()) for each in parts[end:])
            if place.is_dir() and end == len(parts):
                return True
    return False


def test_every_function_that_a_text_describes_is_there() -> None:
    """With the parameters that the text gives it."""
    parameters = _parameters()
    wrong = []
    for where, signature in named(SIGNATURE):
        name, _, given = signature.rstrip(")").partition("(")
        asked = {word for word in re.split(r"[,\s*]+", given) if word.isidentifier()}
        if not any(asked <= known for known in parameters.get(name, ())):
            wrong.append((where, signature))
    assert wrong == []
    spelt = {word for tree in trees() for word in re.findall(r"\w+", tree.read_text())}
    called = [(where, call) for where, marked in named(MARKED) for call in CALL.findall(marked)]
    assert [each for each in called if each[1] not in spelt] == []


def _parameters() -> Mapping[str, Sequence[set[str]]]:
    """Name -> the parameters of every function of that name."""
    found: dict[str, list[set[str]]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                found.setdefault(node.name, []).append({each.arg for each in taken})
    return found


def test_every_command_of_make_is_there() -> None:
    targets = set(re.findall(r"(?m)^([a-z][-a-z0-9]*):", (ROOT / "Makefile").read_text()))
    asked = [(where, words) for where, words in named(re.compile(r"`make ([a-z][-a-z0-9]*)"))]
    assert len(asked) > 10
    assert [each for each in asked if each[1] not in targets] == []


@pytest.mark.parametrize("dotted", ["closeknit.scheduling.schedule", "closeknit.api.names.GROUP", "closeknit.cluster"])
def test_what_is_there_is_found(dotted: str) -> None:
    assert _is_there(dotted)
    assert not _is_there(f"{dotted}.no_such_thing")
