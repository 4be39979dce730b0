"""Pure packages ask nobody for the time, for chance or for their surroundings: what import-linter cannot see.

It sees that `datetime` is imported, which is as it should be, and not that `datetime.now` is called. This test reads
the sources, names and their aliases; the packages are those of the contracts that say "pure".
"""

import ast
import builtins
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")
FORBIDDEN = (
    *(f"datetime.datetime.{call}" for call in ("now", "utcnow", "today")),
    "datetime.date.today",
    *("time", "random", "secrets", "uuid.uuid1", "uuid.uuid4", "numpy.random"),
    *("os", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr", "platform", "locale", "getpass", "socket", "tempfile"),
    *("importlib.resources", "importlib.metadata", "threading", "asyncio", "subprocess", "logging"),
    # Not hash() and id(), which tell whether two values of one process are equal, or the same.
    *(f"builtins.{name}" for name in ("open", "input", "print", "breakpoint")),
)
# The command that writes the CRDs' files stands beside the models that it writes.
SHELLS = ("closeknit/api/crd/__main__.py", "closeknit/api/crd/generated_files.py")
# Nothing imports it: it is text here, and runs in a gang's Pods.
TEXTS = ("closeknit/launch/manifests/preflight_program.py",)


def pure_packages() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [package for contract in contracts if "pure" in contract["name"] for package in contract["source_modules"]]


def modules(package: str) -> Iterator[Path]:
    folder = package.replace(".", "/")
    for source in SOURCES:
        for path in sorted((ROOT / source / folder).rglob("*.py")):
            if path.relative_to(ROOT / source).as_posix() not in SHELLS + TEXTS:
                yield path


def impurities(source: str) -> list[str]:
    """What a module asks of the world, as `line: full name`, in the order of lines."""
    tree = ast.parse(source)
    known: dict[str, str] = {}  # a name of this module -> the full name of what it stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}

    def full_name(node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            is_builtin = hasattr(builtins, node.id) and node.id not in own and node.id not in known
            return f"builtins.{node.id}" if is_builtin else known.get(node.id)
        if isinstance(node, ast.Attribute):
            above = full_name(node.value)
            return f"{above}.{node.attr}" if above else None
        return None

    found = {
        (node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        if (name := full_name(node)) is not None and is_forbidden(name)
    }
    return [f"{line}: {name}" for line, name in sorted(found)]


def caught_blindly(source: str) -> list[int]:
    """Lines of handlers that catch any exception."""
    handlers = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)]
    caught = [(each.lineno, ast.unparse(each.type) if each.type else "BaseException") for each in handlers]
    return [line for line, name in caught if name in {"Exception", "BaseException"}]


def is_forbidden(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN)


@pytest.mark.parametrize("package", pure_packages())
def test_a_pure_package_asks_nobody(package: str) -> None:
    paths = list(modules(package))
    assert paths, "the contract names a package that is not there"
    asked = {path.relative_to(ROOT).as_posix(): impurities(path.read_text()) for path in paths}
    assert {path: names for path, names in asked.items() if names} == {}


@pytest.mark.parametrize("package", pure_packages())
def test_a_mistake_of_ours_is_caught_by_one_guard(package: str) -> None:
    caught = {path: caught_blindly(path.read_text()) for path in modules(package)}
    assert [path.name for path, lines in caught.items() if lines] == (
        ["own_mistake.py"] if package == "closeknit.lifecycle" else []
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from datetime import UTC, datetime\nx = datetime.now(UTC)", ["2: datetime.datetime.now"]),
        ("import datetime\nx = datetime.datetime.utcnow()", ["2: datetime.datetime.utcnow"]),
        ("import datetime as d\nx = d.date.today()", ["2: datetime.date.today"]),
        ("from datetime import datetime as moment\nclock = moment.now", ["2: datetime.datetime.now"]),
        ("def f():\n    from time import monotonic\n    return monotonic()", ["3: time.monotonic"]),
        ("import random as dice\nx = dice.random()", ["2: random", "2: random.random"]),
        ("import os\nx = os.environ['HOME']", ["2: os", "2: os.environ"]),
        ("from uuid import uuid4\nx = uuid4()", ["2: uuid.uuid4"]),
        ("from uuid import UUID\nx = UUID('1' * 32)", []),
        ("x = {hash(name): id(name) for name in 'ab'}", []),
        ("x = open('/etc/hostname')", ["1: builtins.open"]),
        ("def f(cluster, now):\n    return cluster.now, now, cluster.id", []),
        ("from datetime import datetime\nx = datetime.fromisoformat('2026-11-21T12:00:00Z')", []),
        ("from dataclasses import field\nx = field(hash=False)", []),
    ],
)
def test_what_counts_as_asking(source: str, expected: list[str]) -> None:
    assert impurities(source) == expected
